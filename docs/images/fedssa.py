"""Draws fedssa.svg, the figure of FedSSA's section of docs/fidelity.md, from docs/results/mechanisms/fedssa.json.

python docs/images/fedssa.py
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
NUMBERS = HERE.parent / "results" / "mechanisms" / "fedssa.json"
COLOURS = {"separate": "#999999", "spectral": "#0072B2"}
NAMES = {"separate": "before: an encoder of its own", "spectral": "now: the spectral network"}
PARTS = ("none", "structural", "semantic", "both")


def main() -> None:
    """The figure."""
    mpl.rcParams.update({"font.size": 9, "svg.hashsalt": "fedssa", "svg.fonttype": "path"})
    found = json.loads(NUMBERS.read_text())
    figure, (apart, share, parts) = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    for encoder, colour in COLOURS.items():
        rounds = range(1, len(found["class_separation"][encoder]) + 1)
        apart.plot(rounds, found["class_separation"][encoder], color=colour, label=NAMES[encoder])
        own = found["gradient_share"][encoder]
        share.plot(range(2, len(own["hidden"]) + 1), own["hidden"][1:], color=colour)
        if any(own["filter"]):
            share.plot(range(2, len(own["filter"]) + 1), own["filter"][1:], color=colour, linestyle=":")
    apart.set(
        xlabel="Round", ylabel="Standard deviations", title="Distance between classes of a client", ylim=(0, None)
    )
    apart.legend(frameon=False)
    share.set(
        xlabel="Round", ylabel="Share of the cross-entropy's", title="Gradient of the semantic term", yscale="log"
    )
    share.text(0.02, 0.04, "line: hidden weights; dots: filter", transform=share.transAxes, fontsize=8)
    cells = [row["cell"] for row in found["ablation"]]
    for place, part in enumerate(PARTS[1:]):
        gains = [row["val"][part] - row["val"]["none"] for row in found["ablation"]]
        where = [number + 0.26 * (place - 1) for number in range(len(cells))]
        parts.bar(where, gains, 0.24, label=part, color=("#56B4E9", "#E69F00", "#0072B2")[place])
    parts.axhline(0, color="black", linewidth=0.8)
    parts.set_xticks(range(len(cells)), [cell.replace(" ", "\n", 1) for cell in cells], fontsize=7)
    parts.set(ylabel="Points of validation", title="Gain over sharing nothing, now")
    parts.legend(frameon=False)
    figure.savefig(HERE / "fedssa.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
