"""Draws quilt.svg, the figure of docs/quilt.md: `python docs/images/quilt.py`."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

COLOURS = ("#0072B2", "#D55E00", "#009E73")
GREY = "#666666"


def client(ax: plt.Axes, x: float, colour: str, curve: np.ndarray, name: str) -> None:
    """A data owner: its graph, its filter and its mask, none of which leaves the box."""
    ax.add_patch(FancyBboxPatch((x, 0.1), 2.6, 2.5, boxstyle="round,pad=0.05", fc="white", ec=colour, lw=2))
    ax.text(x + 1.3, 2.38, name, ha="center", color=colour, weight="bold")
    stream = np.random.default_rng(int(x * 10))
    nodes = stream.random((7, 2)) * (0.9, 0.9) + (x + 0.1, 1.2)
    for u in range(7):
        near = np.argsort(((nodes - nodes[u]) ** 2).sum(1))[1:3]
        for v in near:
            ax.plot(*nodes[[u, v]].T, color=GREY, lw=0.8, zorder=1)
    ax.scatter(*nodes.T, s=26, color=colour, zorder=2)
    ax.plot(x + 1.4 + np.linspace(0, 1.05, len(curve)), 1.3 + 0.75 * curve, color=colour, lw=2)
    ax.plot([x + 1.4, x + 2.45], [1.3, 1.3], color=GREY, lw=0.8)
    ax.text(x + 1.92, 1.08, "its own filters", ha="center", fontsize=8, color=GREY)
    for row in range(3):
        for column in range(8):
            shade = 0.15 + 0.6 * stream.random()
            ax.add_patch(Rectangle((x + 0.5 + 0.2 * column, 0.35 + 0.15 * row), 0.18, 0.13, color=colour, alpha=shade))
    ax.text(x + 1.3, 0.15, "its own mask", ha="center", fontsize=8, color=GREY)


def main() -> None:
    """The figure."""
    mpl.rcParams.update({"font.size": 10, "svg.hashsalt": "quilt", "svg.fonttype": "path"})
    figure, ax = plt.subplots(figsize=(9.2, 4.6))
    t = np.linspace(0, 1, 50)
    curves = (np.exp(-3 * t), np.abs(np.cos(2.6 * t)), t**1.5)
    for m, (colour, curve) in enumerate(zip(COLOURS, curves, strict=True)):
        x = 0.2 + 3.1 * m
        client(ax, x, colour, curve, f"client {m + 1}")
        style = {"arrowstyle": "<|-|>", "mutation_scale": 12, "color": colour, "lw": 1.6}
        ax.add_patch(FancyArrowPatch((x + 1.3, 2.75), (3.0 + 1.5 * m, 3.5), **style))
    # The shared layer as a quilt: a row a feature, coloured by whose training nodes have it.
    seen = np.array([[9, 1, 0], [6, 0, 3], [0, 8, 2], [3, 3, 4], [0, 0, 9]], dtype=float)
    rgb = np.array([mpl.colors.to_rgb(colour) for colour in COLOURS])
    for row, share in enumerate(seen / seen.sum(1, keepdims=True)):
        y, left = 3.6 + 0.3 * row, 2.2
        for part, colour in zip(share, rgb, strict=True):
            ax.add_patch(Rectangle((left, y), 3.6 * part, 0.27, color=colour, alpha=0.85, lw=0))
            left += 3.6 * part
        ax.text(2.1, y + 0.13, f"feature {5 - row}", ha="right", va="center", fontsize=8)
    ax.text(4.0, 5.2, "shared feature layer: each row averaged over who has seen that feature", ha="center")
    for column, share in enumerate(np.array([[5, 2, 0], [0, 4, 4], [1, 1, 7]], dtype=float)):
        bottom = 3.6
        for part, colour in zip(share / share.sum(), rgb, strict=True):
            ax.add_patch(Rectangle((6.3 + 0.5 * column, bottom), 0.45, 1.47 * part, color=colour, alpha=0.85, lw=0))
            bottom += 1.47 * part
        ax.text(6.52 + 0.5 * column, 3.45, "abc"[column], ha="center", va="center", fontsize=8)
    ax.text(8.05, 4.35, "classifier:\neach class by\nwho has it", ha="left", va="center", fontsize=9)
    ax.set(xlim=(0, 9.6), ylim=(0, 5.5))
    ax.axis("off")
    figure.savefig(Path(__file__).with_suffix(".svg"), bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main()
