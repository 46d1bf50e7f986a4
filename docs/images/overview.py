"""Draw overview.svg: three owners of graphs, what they keep and what crosses. Run: python docs/images/overview.py"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from fedquilt.reports import style

OWNERS = (("Hospital A", style.PALETTE[0]), ("Hospital B", style.PALETTE[1]), ("Hospital C", style.PALETTE[2]))
EDGES = ((0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (4, 5), (1, 5), (2, 6), (6, 3))


def box(axes: Axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    """A rounded box with its lower left corner at (x, y)."""
    shape = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0.02,rounding_size=0.12")
    shape.set(facecolor="white", edgecolor=colour, linewidth=1.6)
    axes.add_patch(shape)


def owner(axes: Axes, x: float, name: str, colour: str, seed: int) -> None:
    """A data owner: a private graph, and its personal model."""
    box(axes, x, 0.1, 2.5, 2.0, colour)
    axes.text(x + 0.12, 1.87, name, color=colour, fontweight="bold", fontsize=10)
    draws = np.random.default_rng(seed)
    angles = np.linspace(0, 2 * np.pi, 7, endpoint=False) + draws.uniform(-0.3, 0.3, 7)
    nodes = np.c_[np.cos(angles) * 0.42, np.sin(angles) * 0.42] * draws.uniform(0.6, 1.1, (7, 1)) + (x + 0.62, 1.1)
    for first, second in EDGES:
        axes.plot(*nodes[[first, second]].T, color=style.GREY, linewidth=0.9, zorder=2)
    axes.scatter(
        *nodes.T, s=34, c=[colour if draws.random() < 0.4 else "white" for _ in nodes], edgecolors=colour, zorder=3
    )
    axes.text(x + 0.62, 0.27, "its graph stays", ha="center", fontsize=8)
    for layer in range(3):
        axes.add_patch(
            FancyBboxPatch((x + 1.45, 0.72 + 0.28 * layer), 0.8, 0.16, boxstyle="round,pad=0.01", facecolor=colour)
        )
    axes.text(x + 1.86, 0.27, "its own model", ha="center", fontsize=8)
    for shift, ends in ((-0.09, (2.14, 3.05)), (0.09, (3.05, 2.14))):
        arrow = FancyArrowPatch(
            (x + 1.25 + shift, ends[0]), (x + 1.25 + shift, ends[1]), arrowstyle="-|>", mutation_scale=11
        )
        arrow.set(color=style.INK, linewidth=1.1)
        axes.add_patch(arrow)


def main() -> None:
    """Write the picture beside this file."""
    with style.styled():
        figure = style.new_figure(8.4, 3.9)
        axes = figure.add_subplot()
        axes.set_axis_off()
        axes.set_xlim(-0.1, 8.6)
        axes.set_ylim(0, 4.1)
        box(axes, 0.1, 3.12, 8.3, 0.82, style.INK)
        axes.text(4.25, 3.66, "Server", ha="center", va="center", fontweight="bold", fontsize=10)
        axes.text(
            4.25,
            3.33,
            "sees only tensors that the method declares; averages what fits together",
            ha="center",
            va="center",
        )
        axes.text(4.4, 2.58, "declared tensors, counted to the byte", ha="left", va="center", fontsize=8)
        for number, (name, colour) in enumerate(OWNERS):
            owner(axes, 0.1 + 2.9 * number, name, colour, number + 3)
        style.save_figure(figure, Path(__file__).with_name("overview.svg"))


if __name__ == "__main__":
    main()
