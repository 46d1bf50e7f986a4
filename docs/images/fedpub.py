"""Draws fedpub.svg of docs/fidelity.md from docs/results/mechanisms/fedpub.json: `python docs/images/fedpub.py`."""

import json
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
COLOURS = {
    "Algorithm 1": "#D55E00",
    "public code": "#009E73",
    "default": "#0072B2",
    "centred": "#CC79A7",
    "centred, no masks": "#E69F00",
}


def main() -> None:
    """Norm of the first layer, effective clients, and correlation with label similarity over the rounds."""
    found = json.loads((HERE.parent / "results" / "mechanisms" / "fedpub.json").read_text())["rounds"]
    mpl.rcParams.update({"font.size": 9, "svg.hashsalt": "fedpub", "svg.fonttype": "path"})
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})
    panels = [
        ("weight_norm", "norm of the first layer"),
        ("effective_clients", "effective clients"),
        ("label_correlation", "correlation with labels"),
    ]
    cells = list(found)
    figure, axes = plt.subplots(len(cells), 3, figsize=(9.6, 2.7 * len(cells)), squeeze=False)
    for row, cell in zip(axes, cells, strict=True):
        for ax, (name, label) in zip(row, panels, strict=True):
            for form, values in found[cell].items():
                if name in values:
                    rounds = [int(at) for at in values[name]]
                    ax.plot(rounds, list(values[name].values()), color=COLOURS[form], label=form, lw=1.6)
            ax.set_title(f"{cell}: {label}", loc="left", fontsize=8)
            ax.set_xlabel("round")
            if name == "weight_norm":
                ax.set_yscale("log")
    axes[0][0].legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(HERE / "fedpub.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
