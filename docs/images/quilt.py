"""Draws quilt.svg, the figure of docs/quilt.md: `python docs/images/quilt.py`."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

COLOURS = ("#0072B2", "#D55E00", "#009E73")  # of clients
VIEWS = {
    **{"mlp": "#CC79A7", "filter": "#56B4E9", "gpr": "#F0E442"},
    **{"attention": "#2FBF9F", "sage": "#E69F00", "private": "#BBBBBB"},
}
WHAT = {
    **{"mlp": "own features", "filter": "own graph filters"},
    **{"gpr": "neighbours' scores", "attention": "similar neighbours"},
    **{"sage": "self and neighbours", "private": "weights of its own"},
}
GREY = "#666666"
MIXTURES = (
    (0.05, 0.3, 0.3, 0.2, 0.1, 0.05),
    (0.05, 0.2, 0.1, 0.05, 0.55, 0.05),
    (0.15, 0.1, 0.05, 0.1, 0.1, 0.5),
)


def client(ax: plt.Axes, x: float, colour: str, mixture: tuple[float, ...], name: str) -> None:
    """A data owner: its graph, and its mixture of views; neither leaves the box."""
    ax.add_patch(FancyBboxPatch((x, 0.1), 2.6, 1.9, boxstyle="round,pad=0.05", fc="white", ec=colour, lw=2))
    ax.text(x + 1.3, 1.8, name, ha="center", color=colour, weight="bold")
    stream = np.random.default_rng(int(x * 10))
    nodes = stream.random((7, 2)) * (0.9, 0.9) + (x + 0.1, 0.6)
    for u in range(7):
        for v in np.argsort(((nodes - nodes[u]) ** 2).sum(1))[1:3]:
            ax.plot(*nodes[[u, v]].T, color=GREY, lw=0.8, zorder=1)
    ax.scatter(*nodes.T, s=26, color=colour, zorder=2)
    ax.text(x + 0.55, 0.25, "its graph", ha="center", fontsize=7, color=GREY)
    bottom = 0.55
    for weight, view in zip(mixture, VIEWS, strict=True):
        ax.add_patch(Rectangle((x + 1.6, bottom), 0.5, 1.1 * weight, color=VIEWS[view], lw=0))
        bottom += 1.1 * weight
    ax.text(x + 1.85, 0.25, "its mixture", ha="center", fontsize=7, color=GREY)


def main() -> None:
    """The figure."""
    mpl.rcParams.update({"font.size": 10, "svg.hashsalt": "quilt", "svg.fonttype": "path"})
    figure, ax = plt.subplots(figsize=(9.2, 4.4))
    for m, (colour, mixture) in enumerate(zip(COLOURS, MIXTURES, strict=True)):
        x = 0.2 + 3.1 * m
        client(ax, x, colour, mixture, f"client {m + 1}")
        up = {"arrowstyle": "-|>", "mutation_scale": 12, "color": colour, "lw": 1.6}
        ax.add_patch(FancyArrowPatch((x + 1.1, 2.15), (2.9 + 1.7 * m, 3.0), **up))
        ax.add_patch(FancyArrowPatch((3.2 + 1.7 * m, 3.0), (x + 1.5, 2.15), **{**up, "lw": 0.9}))
    ax.text(0.25, 2.55, "gradients, votes", fontsize=8, color=GREY)
    ax.text(8.0, 2.55, "shared weights,\naverage votes", fontsize=8, color=GREY, va="center")
    for place, (view, colour) in enumerate(VIEWS.items()):
        left = 0.05 + 1.6 * place
        ax.add_patch(
            FancyBboxPatch((left, 3.15), 1.48, 0.95, boxstyle="round,pad=0.03", fc=colour, ec="none", alpha=0.85)
        )
        ax.text(left + 0.74, 3.78, view, ha="center", weight="bold")
        ax.text(left + 0.74, 3.4, WHAT[view], ha="center", fontsize=7)
    ax.text(4.8, 4.4, "server: a step of Adam along the mean gradient of each view;", ha="center")
    ax.text(
        4.8,
        4.2,
        "what is clearly worse by votes is dropped before round 30, all but the best two before round 60",
        ha="center",
        fontsize=8,
    )
    ax.set(xlim=(0, 9.6), ylim=(0, 4.7))
    ax.axis("off")
    figure.savefig(Path(__file__).with_suffix(".svg"), bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main()
