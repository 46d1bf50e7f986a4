"""Draws fedsheafhn.svg, the figure of docs/fidelity.md, from docs/results/mechanisms/fedsheafhn.json."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent
COLOURS = {
    "FedSheafHN": "#0072B2",
    "centred, 0.3": "#009E73",
    "centred, 1": "#E69F00",
    "shuffled every round": "#CC79A7",
    "all alike": "#999999",
}
CELLS = {
    "cora-d10": "Cora 10",
    "cora-d20": "Cora 20",
    "citeseer-d10": "CiteSeer 10",
    "citeseer-d20": "CiteSeer 20",
    "pubmed-d10": "PubMed 10",
    "photo-d10": "Photo 10",
    "cora-o30": "Cora overlapping 30",
}
ROWS = ["FedAvg", "FedPer", "shuffled every round", "personal_step=0.3", "centred, 0.3", "centred, 0.5", "FedSheafHN"]


def over_rounds(ax: plt.Axes, rounds: dict[str, Any], name: str, title: str) -> None:
    """One diagnostic of Cora, 20 disjoint clients, by round."""
    for variant, colour in COLOURS.items():
        if variant in rounds:
            ax.plot(rounds[variant]["round"], rounds[variant][name], color=colour, lw=2, label=variant)
    ax.set(xlabel="round", title=title)
    ax.grid(alpha=0.3)


def margins(ax: plt.Axes, found: dict[str, Any], value: str, title: str) -> None:
    """Each variant's margin over the same layers for everyone, a dot for each cell."""
    for y, row in enumerate(ROWS):
        gaps = [
            (cell, found[cell][row][value] - found[cell]["all alike"][value])
            for cell in CELLS
            if row in found.get(cell, {})
        ]
        values = [gap for _, gap in gaps]
        ax.scatter(values, [y] * len(values), s=24, color="#0072B2", alpha=0.6)
        if values:
            ax.plot([np.mean(values)] * 2, [y - 0.3, y + 0.3], color="black", lw=2)
    ax.axvline(0, color="#999999", lw=1)
    ax.set(yticks=range(len(ROWS)), yticklabels=ROWS, xlabel="points above the same layers for everyone", title=title)
    ax.grid(axis="x", alpha=0.3)


def main() -> None:
    """The figure."""
    mpl.rcParams.update({"font.size": 9, "svg.hashsalt": "fedsheafhn", "svg.fonttype": "path"})
    data = json.loads((HERE.parent / "results" / "mechanisms" / "fedsheafhn.json").read_text())
    figure, axes = plt.subplots(2, 2, figsize=(10, 7))
    over_rounds(
        axes[0, 0], data["rounds"], "personal_share", "how far generated layers differ, over how far they moved"
    )
    over_rounds(axes[0, 1], data["rounds"], "similarity_median", "median cosine of two clients' vectors")
    axes[0, 0].legend()
    margins(axes[1, 0], data["seeds 0-2"], "val", "validation, seeds 0 to 2 (a dot a cell, bar: mean)")
    margins(axes[1, 1], data["seeds 10-12"], "test", "test, seeds 10 to 12")
    figure.tight_layout()
    figure.savefig(HERE / "fedsheafhn.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
