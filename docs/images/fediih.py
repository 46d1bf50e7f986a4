"""Draws fediih-mechanism.svg from docs/results/mechanisms/fediih.json: `python docs/images/fediih.py`."""

import json
from pathlib import Path

from fedquilt.reports.style import GREY, colour, new_figure, save_figure, styled

HERE = Path(__file__).parent
CELLS = {"cora-d10": "Cora, 10 disjoint", "cora-o30": "Cora, 30 overlapping"}


def main() -> None:
    """Effective clients over rounds; validation accuracy over tau; over the weight of the priors."""
    found = json.loads((HERE.parent / "results" / "mechanisms" / "fediih.json").read_text(encoding="utf-8"))
    with styled():
        figure = new_figure(10.5, 3.1)
        over_rounds, over_tau, over_kl = figure.subplots(1, 3)
        for i, (cell, name) in enumerate(CELLS.items()):
            for kind, dash in (("absolute", ":"), ("capped", "-")):
                curve = found["rounds"][cell][kind]
                over_rounds.plot(range(1, 1 + len(curve)), curve, dash, color=colour(i), label=f"{name}, {kind}")
            rows = found["kl"][cell]
            for kind, dash in (("on", "-"), ("off", ":")):
                over_kl.plot(
                    [row["kl"] for row in rows], [row[kind] for row in rows], dash, color=colour(i), marker="."
                )
        for kind, dash in (("absolute", ":"), ("capped", "-")):
            rows = found["tau"]["cora-d10"][kind]
            over_tau.plot([row["tau"] for row in rows], [row["val"] for row in rows], dash, color=colour(0), marker=".")
        over_rounds.set(title="Whom a client averages with", xlabel="round", ylabel="effective clients", ylim=(0, None))
        over_tau.set(title="How sharply (tau)", xlabel="tau", ylabel="validation accuracy (%)", xscale="log")
        over_kl.set(title="Priors: hierarchy on, off", xlabel="weight of the priors (kl)", xscale="log")
        over_kl.set(ylabel="validation accuracy (%)")
        over_rounds.legend(fontsize=6.5)
        over_tau.text(
            0.98, 0.03, "dotted: as printed; solid: capped", transform=over_tau.transAxes, ha="right", color=GREY
        )
        over_kl.text(0.02, 0.03, "solid: with hierarchy; dotted: without", transform=over_kl.transAxes, color=GREY)
        save_figure(figure, HERE / "fediih-mechanism.svg")


if __name__ == "__main__":
    main()
