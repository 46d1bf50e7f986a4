"""Figures of what a method learns beside its models (`Method.findings`), for one run or for two side by side.

These arrays are drawn; M clients, C classes:

    coefficients          [M, O]     a learned polynomial filter: a coefficient for each order 0..O-1
    cluster_coefficients  [M, O]     the filter of the client's cluster
    structural_cluster    [M]        the client's cluster, a number; negative: none
    frequencies           [G]        graph frequencies in 0..2; with them `responses` are drawn instead of coefficients
    responses             [M, G]     the filter's response at each frequency
    cluster_responses     [M, G]     the response of the cluster's filter
    class_means           [M, C, d]  a mean for each class at each client
    class_counts          [M, C]     training nodes of the class; where there are none, the mean is not drawn
    class_separation      []         how many standard deviations two classes of a client are apart, on average
    views                 [M, V]     the weights of a client's views of its graph; drawn by `fedquilt.reports.views`

Rows that are not finite are left out everywhere.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.reports import style
from fedquilt.reports.figures import draw_group_lines, matrices_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Findings = Mapping[str, np.ndarray]
Runs = Sequence[tuple[str, Findings]]
"""The runs to draw side by side: a name and the findings of each."""

_MAX_CLUSTERS = 6
_MAX_CLASSES = 12
_MIN_FOR_TSNE = 4


def factors_figure(matrices: Any, title: str = "", groups: Sequence[Any] | None = None) -> Figure:
    """The similarity of clients in each latent factor, [K, M, M], on one colour scale; groups as in `heatmap_figure`."""
    names = {f"Factor {number}": matrix for number, matrix in enumerate(matrices, start=1)}
    figure = matrices_figure(names, title, panel=2.4 if len(names) <= 3 else 1.8, ticks=True)
    if groups is not None:
        for axes in figure.axes[: len(names)]:
            draw_group_lines(axes, groups)
    return figure


def has_filters(findings: Findings) -> bool:
    """Whether `filters_figure` has something to draw."""
    return "coefficients" in findings


def filters_figure(runs: Runs, title: str = "") -> Figure:
    """The clients' filters as thin lines, their cluster's as a bold one: a panel for each cluster, the largest first."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    as_responses = all("frequencies" in found and "responses" in found for _, found in runs)
    kind = "responses" if as_responses else "coefficients"
    panels = [_clusters(found) for _, found in runs]
    rows = [math.ceil(len(some) / (3 if len(runs) == 1 else 2)) for some in panels]
    columns = [math.ceil(len(some) / deep) for some, deep in zip(panels, rows, strict=True)]
    low, high = _range([found[name] for _, found in runs for name in (kind, "cluster_" + kind) if name in found])
    with style.styled():
        figure = style.new_figure(0.5 + max(3.2, 2.0 * max(columns)) * len(runs), 0.8 + max(2.0, 1.6 * max(rows)))
        halves = figure.subfigures(1, len(runs), squeeze=False)[0]
        for half, (label, found), clusters, deep, wide in zip(halves, runs, panels, rows, columns, strict=True):
            grid = half.subplots(deep, wide, squeeze=False, sharex=True, sharey=True)
            for axes, (name, members) in zip(grid.flat, clusters, strict=False):
                _draw_filters(axes, found, kind, members)
                axes.set_title(name, fontsize=8.5, fontweight="normal")
                axes.set_ylim(low, high)
                axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=(1, 2, 5, 10)))
                axes.grid(axis="y")
                if not as_responses:
                    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=(1, 2, 5, 10)))
            for place, axes in enumerate(grid.flat):
                if place >= len(clusters):
                    axes.set_axis_off()
                elif place + wide >= len(clusters):  # the lowest panel of its column has the numbers
                    axes.tick_params(labelbottom=True)
            half.supxlabel("Graph frequency" if as_responses else "Order", fontsize=9)
            half.supylabel("Response" if as_responses else "Coefficient", fontsize=9)
            total = _cluster_count(found)
            more = f"the {_MAX_CLUSTERS} largest of {total} clusters" if total > _MAX_CLUSTERS else ""
            heading = ", ".join(part for part in (title if len(runs) == 1 else _wrapped(label), more) if part)
            half.suptitle(heading, fontsize=10, fontweight="bold")
        if len(runs) > 1 and title:
            figure.suptitle(title, fontsize=10, fontweight="bold")
        keys = [Line2D([], [], **_THIN, label="a client")]
        if any("cluster_" + kind in found for _, found in runs):
            keys.append(Line2D([], [], **_BOLD, label="its cluster"))
        figure.legend(handles=keys, loc="outside lower right", ncols=2)
        return figure


def has_class_means(findings: Findings) -> bool:
    """Whether `class_means_figure` has something to draw."""
    return "class_means" in findings and "class_counts" in findings and len(_class_points(findings)[0]) > 0


def class_means_figure(runs: Runs, title: str = "", class_names: Sequence[str] | None = None) -> Figure:
    """Each client's mean of each class in a plane: the colour is the class, the size grows with its training nodes.

    All runs share the plane (see `plane`), so positions compare.
    """
    from matplotlib.lines import Line2D

    parts = [_class_points(found) for _, found in runs]
    points, classes, counts = (np.concatenate(some) for some in zip(*parts, strict=True))
    if not len(points):
        raise FedquiltError("There are no class means to draw.")
    positions, kind = plane(points)
    colours = _class_colours(classes, counts)
    sizes = 150 * np.sqrt(counts / counts.max())
    first = 0
    with style.styled():
        figure = style.new_figure(1.1 + 3.6 * len(runs), 3.7)
        for axes, (label, found), part in zip(
            figure.subplots(1, len(runs), squeeze=False, sharex=True, sharey=True)[0], runs, parts, strict=True
        ):
            mine = np.arange(first, first + len(part[0]))
            first += len(mine)
            mine = mine[np.argsort(-sizes[mine], kind="stable")]  # small ones on top
            axes.scatter(
                *positions[mine].T,
                s=sizes[mine],
                c=[colours.get(number, style.GREY) for number in classes[mine].tolist()],
                alpha=0.85,
                edgecolors="white",
                linewidths=0.5,
            )
            axes.set_title(title if len(runs) == 1 else _wrapped(label))
            axes.set_xlabel(f"{kind} 1")
            if "class_separation" in found:
                apart = f"{float(found['class_separation']):.1f} standard deviations between classes of a client"
                axes.annotate(apart, (0.02, 0.02), xycoords="axes fraction", fontsize=7)
            axes.set_xticks([])
            axes.set_yticks([])
        figure.axes[0].set_ylabel(f"{kind} 2")
        if len(runs) > 1 and title:
            figure.suptitle(title, fontsize=10, fontweight="bold")
        dot: Any = {"linestyle": "none", "marker": "o", "markeredgecolor": "none"}
        keys = [
            Line2D([], [], **dot, markersize=6, color=colours[n], label=style.class_label(n, class_names))
            for n in sorted(colours)
        ]
        if len(colours) < len(np.unique(classes)):
            keys.append(Line2D([], [], **dot, markersize=6, color=style.GREY, label="other"))
        keys.append(Line2D([], [], linestyle="none", label=""))
        for count in sorted({int(counts.min()), int(counts.max())}):
            size = math.sqrt(150 * math.sqrt(count / counts.max()))  # scatter takes areas, a key's dot a diameter
            keys.append(
                Line2D([], [], **dot, markersize=size, color=style.PALE, label=f"{count:,} node{'s' * (count > 1)}")
            )
        figure.legend(handles=keys, title="Class", loc="outside right upper", labelspacing=0.45)
        return figure


def can_tsne() -> bool:
    """Whether scikit-learn, which is optional, is installed."""
    try:
        import sklearn.manifold  # noqa: F401
    except ImportError:
        return False
    return True


def plane(points: np.ndarray) -> tuple[np.ndarray, str]:
    """Project points [P, d] to a plane [P, 2]. Returns them and the name of the axes.

    Uses t-SNE, or the two leading principal components where scikit-learn is missing or the points are too few or equal.
    """
    count, width = points.shape
    if count >= _MIN_FOR_TSNE and width >= 2 and np.ptp(points, axis=0).any() and can_tsne():
        from sklearn.manifold import TSNE

        perplexity = min(30.0, (count - 1) / 3)
        return TSNE(2, perplexity=perplexity, init="pca", random_state=0).fit_transform(points), "t-SNE"
    left, scale, _ = np.linalg.svd(points - points.mean(0), full_matrices=False)
    both = np.zeros((count, 2))
    both[:, : min(2, len(scale))] = (left * scale)[:, :2]
    return both, "Principal component"


_THIN: Any = {"color": style.PALETTE[5], "linewidth": 0.8}
_BOLD: Any = {"color": style.PALETTE[0], "linewidth": 2.2}


def _wrapped(label: str) -> str:
    """The label in lines that fit above one run's part of a figure."""
    return textwrap.fill(label, 36)


def _clusters(findings: Findings) -> list[tuple[str, np.ndarray]]:
    """The panels of a run: a title, and the clients in it."""
    clients = len(findings["coefficients"])
    if "structural_cluster" not in findings:
        return [(f"All {clients} clients", np.arange(clients))]
    labels = findings["structural_cluster"]
    found, sizes = np.unique(labels, return_counts=True)
    largest = np.argsort(-sizes, kind="stable")[:_MAX_CLUSTERS]
    panels = []
    for number, size in zip(found[largest].tolist(), sizes[largest].tolist(), strict=True):
        name = f"Cluster {int(number) + 1}" if number >= 0 else "No cluster"
        panels.append((f"{name} ({size} client{'s' if size > 1 else ''})", np.flatnonzero(labels == number)))
    return panels


def _cluster_count(findings: Findings) -> int:
    return len(np.unique(findings["structural_cluster"])) if "structural_cluster" in findings else 1


def _draw_filters(axes: Axes, findings: Findings, kind: str, members: np.ndarray) -> None:
    clients = findings[kind][members]
    x = findings["frequencies"] if kind == "responses" else np.arange(clients.shape[1])
    for row in _finite(clients):
        axes.plot(x, row, **_THIN)
    if "cluster_" + kind in findings:
        # Equal filters, as within a cluster, are drawn once.
        for row in np.unique(_finite(findings["cluster_" + kind][members]), axis=0):
            axes.plot(x, row, **_BOLD)


def _finite(rows: np.ndarray) -> np.ndarray:
    return rows[np.isfinite(rows).all(1)]


def _range(tables: Sequence[np.ndarray]) -> tuple[float, float]:
    """The minimum and maximum of the rows that are drawn, with a margin."""
    values = np.concatenate([_finite(table).ravel() for table in tables])
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * (high - low) or 0.5
    return low - margin, high + margin


def _class_points(findings: Findings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The class means that are drawn [P, d], the class of each [P] and its training nodes [P]."""
    means, counts = findings["class_means"], findings["class_counts"]
    client, number = np.nonzero((counts > 0) & np.isfinite(means).all(2))
    return means[client, number].astype(np.float64), number, counts[client, number]


def _class_colours(classes: np.ndarray, counts: np.ndarray) -> dict[int, Any]:
    """A colour for each class in the legend: all, or those with most training nodes where there are many."""
    nodes = np.bincount(classes, counts)
    present = np.unique(classes)
    named = sorted(present[np.argsort(-nodes[present], kind="stable")[:_MAX_CLASSES]].tolist())
    return dict(zip(named, style.class_colours(len(named)), strict=True))
