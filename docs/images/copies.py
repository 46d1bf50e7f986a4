"""Draws copies.svg, the figure of docs/results/fedhero-fedsheafhn.md: `python docs/images/copies.py`."""

import json
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent
NUMBERS = HERE.parent / "results" / "mechanisms" / "copies.json"
WITH, WITHOUT, TOGETHER = "#D55E00", "#0072B2", "#009E73"


def bars(ax: plt.Axes, names: list[str], series: dict[str, tuple[str, list[float]]], title: str) -> None:
    """Groups of bars, a group for each name."""
    width = 0.8 / len(series)
    for number, (label, (colour, heights)) in enumerate(series.items()):
        places = np.arange(len(names)) + (number - (len(series) - 1) / 2) * width
        ax.bar(places, heights, width, color=colour, label=label)
        for x, y in zip(places, heights, strict=True):
            ax.text(x, y + 1, f"{y:.0f}", ha="center", fontsize=7)
    ax.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
    ax.set_ylim(0, 128)  # with room for the legend
    ax.set_yticks(range(0, 101, 25))
    ax.set_title(title, fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """The figure: accuracy by whether a test node has a twin in training, and what is left when there is none."""
    mpl.rcParams.update({"font.size": 9, "svg.hashsalt": "copies", "svg.fonttype": "path"})
    numbers = json.loads(NUMBERS.read_text())
    figure, axes = plt.subplots(2, 2, figsize=(9.2, 5.2), sharey=True)
    for row, graph in enumerate(("Squirrel", "Chameleon")):
        twins, table = numbers["twins, METIS 5, fold 0"][graph], numbers["METIS 5"][graph]
        bars(
            axes[row, 0],
            list(twins),
            {
                "with a twin in training": (WITH, [each["with"] for each in twins.values()]),
                "without": (WITHOUT, [each["without"] for each in twins.values()]),
            },
            f"{graph}, copies apart: test nodes",
        )
        bars(
            axes[row, 1],
            list(table),
            {
                "copies apart": (WITH, [each["apart"] for each in table.values()]),
                "copies together": (TOGETHER, [each["together"] for each in table.values()]),
            },
            f"{graph}, all test nodes",
        )
        axes[row, 0].set_ylabel("test accuracy (%)")
    for ax in axes[0]:
        ax.legend(fontsize=8, frameon=False, loc="upper right", ncols=2)
    figure.tight_layout()
    figure.savefig(HERE / "copies.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
