"""The figure of a partition: each client's nodes and classes as bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.reports import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_CLASSES = 15


def partition_picture(
    edges: Any,
    client_of_node: Sequence[Any],
    y: Any,
    path: Path,
    title: str = "",
    class_names: Sequence[str] | None = None,
) -> None:
    """Write `partition_figure` to `path`."""
    style.save_figure(partition_figure(edges, client_of_node, y, title, class_names), path)


def partition_figure(
    edges: Any, client_of_node: Sequence[Any], y: Any, title: str = "", class_names: Sequence[str] | None = None
) -> Figure:
    """How large each client is (above) and the share of each class among its nodes (below).

    Arguments:
        edges: [2, E] node indices of the whole graph.
        client_of_node: for each client the node indices it holds; they may overlap.
        y: [N] the class of each node; a negative one or NaN is a node without a label.
        title: written above the picture; how much of the graph is kept is added to it.
        class_names: the names of the classes, where they have names.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    holdings = [np.asarray(nodes, dtype=np.int64) for nodes in client_of_node]
    labels, names = _classes(y, class_names)
    if not holdings:
        raise FedquiltError("A partition needs at least one client.")
    counts = np.stack([np.bincount(labels[nodes], minlength=len(names)) for nodes in holdings])
    sizes = counts.sum(1)
    shares = 100 * counts / np.maximum(sizes, 1)[:, None]
    clients = len(holdings)
    where = np.arange(clients)
    # Gaps between few bars; between many bars, gaps would hide them.
    width = 0.82 if clients <= 60 else 1.0
    with style.styled():
        figure = style.new_figure(min(9.0, max(4.6, 2.4 + 0.22 * clients)), 3.8)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2.6))
        above.bar(where, sizes, width=width, color=style.GREY, linewidth=0)
        above.set_ylabel("Nodes")
        above.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
        above.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        above.grid(axis="y")
        above.set_title(_facts(edges, holdings, len(labels)), fontsize=8, fontweight="normal", color="#555555")
        if title:
            figure.suptitle(title, fontsize=10, fontweight="bold", x=0.01, ha="left")
        below_so_far = np.zeros(clients)
        for position, (name, colour) in enumerate(zip(names, _colours(names), strict=True)):
            below.bar(
                where,
                shares[:, position],
                bottom=below_so_far,
                width=width,
                color=colour,
                label=name,
                edgecolor="white",
                linewidth=0.5 if clients <= 60 else 0,
            )
            below_so_far = below_so_far + shares[:, position]
        below.set_ylabel("Share of nodes (%)")
        below.set_xlabel("Client")
        below.set_ylim(0, 100)
        below.set_xlim(-0.6, clients - 0.4)
        if clients <= 30:
            below.set_xticks(where)
        else:
            below.xaxis.set_major_locator(MaxNLocator(integer=True, steps=(1, 2, 5, 10)))
        for axes in (above, below):
            axes.tick_params(axis="x", length=0)
        handles, texts = below.get_legend_handles_labels()
        # Top to bottom in the legend as in the bars.
        below.legend(
            handles[::-1],
            texts[::-1],
            title="Class",
            loc="upper left",
            bbox_to_anchor=(1.0, 1.04),
            handlelength=1.0,
            handleheight=1.0,
            labelspacing=0.25,
            fontsize=7 if len(names) > 10 else 8,
            title_fontsize=8,
        )
        return figure


def _classes(y: Any, class_names: Sequence[str] | None = None) -> tuple[np.ndarray, list[str]]:
    """The position of each node's class [N], and the classes' names: at most 15, then "others", then "none"."""
    raw = np.asarray(y)
    if raw.ndim == 2 and raw.shape[1] == 1:
        raw = raw[:, 0]
    if raw.ndim != 1:
        raise FedquiltError("The picture of a partition needs one class a node.")
    raw = np.where(np.isfinite(raw), raw, -1).astype(np.int64)
    classes, sizes = np.unique(raw[raw >= 0], return_counts=True)
    shown = classes if len(classes) <= _MAX_CLASSES else np.sort(classes[np.argsort(-sizes)[:_MAX_CLASSES]])
    names = [style.class_label(int(number), class_names) for number in shown]
    positions = np.full(len(raw), -1)
    known = np.isin(raw, shown)
    positions[known] = np.searchsorted(shown, raw[known])
    for rest, name in (((raw >= 0) & ~known, "others"), (raw < 0, "none")):
        if rest.any():
            positions[rest] = len(names)
            names.append(name)
    return positions, names


def _colours(names: Sequence[str]) -> list[Any]:
    greys = {"others": style.GREY, "none": style.PALE}
    palette = iter(style.class_colours(_MAX_CLASSES))
    return [greys[name] if name in greys else next(palette) for name in names]


def _facts(edges: Any, holdings: Sequence[np.ndarray], total: int) -> str:
    """One line of numbers: clients, the nodes they hold, and the share of edges inside a client."""
    ends = np.asarray(edges, dtype=np.int64).reshape(2, -1)
    kept = np.zeros(ends.shape[1], dtype=bool)
    held = np.zeros(total, dtype=bool)
    for nodes in holdings:
        mine = np.zeros(total, dtype=bool)
        mine[nodes] = True
        kept |= mine[ends[0]] & mine[ends[1]]
        held |= mine
    facts = [f"{len(holdings):,} clients", f"{held.sum():,} of {total:,} nodes"]
    if kept.size:
        facts.append(f"{100 * kept.mean():.0f}% of edges inside a client")
    return "  ·  ".join(facts)
