"""The figures of a run: convergence, client similarity, and a metric for each client.

Each `name_figure` builds a matplotlib `Figure`; each `name` writes it to a path, atomically.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.common.printable import printable
from fedquilt.errors import FedquiltError
from fedquilt.reports import style
from fedquilt.reports.names import metric_name
from fedquilt.reports.over_seeds import Records, best_column, mean_and_std, values_by_round

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STEPS = (1, 2, 5, 10)
_MAX_MARKERS = 12  # points of a line that are marked, where it has no more


def convergence(curves: Mapping[str, Sequence[Records]], path: Path, metric: str = "accuracy") -> None:
    """Write `convergence_figure` to `path`."""
    style.save_figure(convergence_figure(curves, metric), path)


def heatmap(matrix: Any, path: Path, title: str = "", groups: Sequence[Any] | None = None) -> None:
    """Write `heatmap_figure` to `path`."""
    style.save_figure(heatmap_figure(matrix, title, groups), path)


def client_bars(
    values: Sequence[Sequence[float | None]],
    path: Path,
    baseline: Any = None,
    metric: str = "accuracy",
    label: str = "personal model",
    baseline_label: str = "baseline",
    title: str = "",
    names: Sequence[str] | None = None,
) -> None:
    """Write `client_bars_figure` to `path`."""
    style.save_figure(client_bars_figure(values, baseline, metric, label, baseline_label, title, names), path)


def similarity_rounds(matrices: Mapping[int, Any], path: Path, title: str = "") -> None:
    """Write `similarity_rounds_figure` to `path`."""
    style.save_figure(similarity_rounds_figure(matrices, title), path)


def convergence_figure(curves: Mapping[str, Sequence[Records]], metric: str = "accuracy") -> Figure:
    """Validation (thin) and test (bold) against the round, for each label the mean over its seeds.

    The band is one standard deviation of test over seeds, either side. The dot is the test value at the round
    with the best mean validation: that round is chosen without looking at the test nodes.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    if not any(len(records) for seeds in curves.values() for records in seeds):
        raise FedquiltError("There are no rounds to draw yet.")
    name_of_metric = metric_name(metric)
    outside = len(curves) > 5
    with style.styled():
        figure = style.new_figure(6.4 if outside else 5.0, 3.3)
        axes = figure.add_subplot()
        for position, (label, seeds) in enumerate(curves.items()):
            look = {"color": style.colour(position), "linestyle": style.dash(position)}
            rounds, val_values = values_by_round(seeds, "val")
            val, _ = mean_and_std(val_values)
            test, test_std = mean_and_std(values_by_round(seeds, "test")[1])
            for mean, name, width, shade in ((val, "validation", 0.8, 0.0), (test, "test", 1.9, 0.18)):
                seen = np.isfinite(mean)
                line_label = label if name == "test" else "_validation of " + label
                axes.plot(
                    rounds[seen],
                    mean[seen],
                    linewidth=width,
                    alpha=1.0 if name == "test" else 0.75,
                    label=line_label,
                    zorder=3 if name == "test" else 2.5,
                    **look,
                )
                if shade and len(seeds) > 1:
                    low, high = (mean - test_std)[seen], (mean + test_std)[seen]
                    axes.fill_between(rounds[seen], low, high, color=look["color"], alpha=shade, linewidth=0, zorder=2)
            best = best_column(val, test, name_of_metric.higher_is_better)
            if best is not None:
                axes.plot(
                    rounds[best],
                    test[best],
                    marker="o",
                    markersize=6.5,
                    markerfacecolor=look["color"],
                    markeredgecolor="white",
                    markeredgewidth=1.2,
                    linestyle="none",
                    label="_best of " + label,
                    zorder=4,
                )
        axes.set_xlabel("Round")
        axes.set_ylabel(name_of_metric.label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=_STEPS))
        axes.grid(axis="y")
        axes.margins(x=0.02)
        named = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
        keys = [
            Line2D([], [], color=style.INK, linewidth=1.9, label="test"),
            Line2D([], [], color=style.INK, linewidth=0.8, label="validation"),
            Line2D([], [], color=style.INK, marker="o", linestyle="none", markersize=5, label="best round"),
        ]
        # Curves rise, so the lower right is where there is room.
        axes.legend(handles=keys, loc="lower right", handlelength=1.8)
        if outside:
            figure.legend(handles=named, loc="outside right upper")
        else:
            figure.legend(handles=named, loc="outside upper left", ncols=5, columnspacing=1.4, handlelength=1.8)
        return figure


def diagnostics_figure(seeds: Sequence[Records], title: str = "") -> Figure:
    """Every number of the records against the round: a panel for each, the mean over seeds and one standard deviation.

    Each record has its round and the numbers of `Method.diagnostics` by name.
    """
    from matplotlib.ticker import MaxNLocator

    names = list(dict.fromkeys(name for records in seeds for record in records for name in record if name != "round"))
    if not names:
        raise FedquiltError("There are no diagnostics to draw.")
    columns = min(3, len(names))
    rows = math.ceil(len(names) / columns)
    with style.styled():
        figure = style.new_figure(0.4 + 2.5 * columns, 0.5 + 1.9 * rows)
        grid = figure.subplots(rows, columns, squeeze=False).flat
        for axes, name in itertools.zip_longest(grid, names):
            if name is None:
                axes.set_axis_off()
                continue
            rounds, values = values_by_round(seeds, name)
            mean, std = mean_and_std(values)
            seen = np.isfinite(mean)
            marker = "o" if seen.sum() <= _MAX_MARKERS else None
            axes.plot(rounds[seen] + 1, mean[seen], color=style.PALETTE[0], linewidth=1.6, marker=marker, markersize=3)
            if len(seeds) > 1:
                low, high = (mean - std)[seen], (mean + std)[seen]
                axes.fill_between(rounds[seen] + 1, low, high, color=style.PALETTE[0], alpha=0.18, linewidth=0)
            axes.set_title(name.replace("_", " ").capitalize(), fontsize=9, fontweight="normal")
            axes.set_xlabel("Round")
            axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, steps=_STEPS))
            axes.grid(axis="y")
        if title:
            figure.suptitle(title, fontsize=10, fontweight="bold")
        return figure


def heatmap_figure(matrix: Any, title: str = "", groups: Sequence[Any] | None = None) -> Figure:
    """A client-by-client similarity matrix as a heatmap, clients in their own order.

    `groups` has a label for each client; lines are drawn between groups. The colours span the values off the
    diagonal: a client is always most similar to itself, and that would hide the rest.
    """
    square = _square(matrix)
    clients = len(square)
    if groups is not None and len(groups) != clients:
        raise FedquiltError(f"The matrix has {clients} clients, but {len(groups)} group labels were given.")
    with style.styled():
        figure = style.new_figure(4.2, 3.6)
        axes = figure.add_subplot()
        low, high = span([square])
        image = draw_matrix(axes, square, low, high)
        if clients <= 10:
            _write_cells(axes, square, low, high)
        if groups is not None:
            draw_group_lines(axes, groups)
        axes.set_title(title)
        axes.set_xlabel("Client")
        axes.set_ylabel("Client")
        bar = figure.colorbar(image, ax=axes, shrink=0.85, extend=arrows([square], low, high))
        plain_bar(bar, "Similarity")
        return figure


def client_bars_figure(
    values: Sequence[Sequence[float | None]],
    baseline: Any = None,
    metric: str = "accuracy",
    label: str = "personal model",
    baseline_label: str = "baseline",
    title: str = "",
    names: Sequence[str] | None = None,
) -> Figure:
    """A bar for each client: the mean over seeds of `values[seed][client]`, one standard deviation as a whisker.

    `baseline` is a number, or values of another method in the same shape, drawn as a line across each bar.
    A client without a value (no test node) gets no bar. `names` are the clients', where they have names.
    """
    from matplotlib.ticker import MaxNLocator

    table = _table(values)
    mean, spread = mean_and_std(table)
    clients = len(mean)
    with style.styled():
        figure = style.new_figure(min(9.0, max(4.2, 1.6 + 0.26 * clients)), 3.0)
        axes = figure.add_subplot()
        where = np.arange(clients)
        bars = axes.bar(where, mean, width=0.72, color=style.PALETTE[5], label=label, linewidth=0)
        keys: list[Any] = [bars]
        if len(table) > 1:
            axes.errorbar(
                where,
                mean,
                spread,
                fmt="none",
                ecolor=style.INK,
                elinewidth=0.9 if clients <= 50 else 0.5,
                capsize=0,
                zorder=4,
            )
        overall = float(np.nanmean(mean)) if np.isfinite(mean).any() else math.nan
        if math.isfinite(overall):
            text = f"mean {overall:.1f}"
            keys.append(axes.axhline(overall, color=style.PALETTE[0], linewidth=1.1, linestyle="--", label=text))
        if baseline is not None:
            level = _baseline(baseline, clients)
            average = float(np.nanmean(level)) if np.isfinite(level).any() else math.nan
            text = f"{baseline_label} (mean {average:.1f})"
            look: Any = {"color": style.PALETTE[1], "linewidth": 1.8, "zorder": 5, "label": text}
            keys.append(axes.hlines(level, where - 0.46, where + 0.46, **look))
        axes.set_title(title)
        axes.set_xlabel("Client")
        axes.set_ylabel(metric_name(metric).label)
        axes.set_xlim(-0.7, clients - 0.3)
        axes.set_ylim(bottom=0)
        if clients <= 30:
            axes.set_xticks(where)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=_STEPS))
        if names is not None and clients <= 30:
            axes.set_xticks(where, list(map(shortened_name, names)), **tilted(names))
            axes.set_xlabel("")
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="y")
        figure.legend(handles=keys, loc="outside upper left", ncols=3, columnspacing=1.4, handlelength=1.6)
        return figure


def shortened_name(name: str, most: int = 20) -> str:
    """A client's name on an axis, with an ellipsis where it is long; matplotlib reads no mathematics in it."""
    text = printable(name)
    return (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")


def tilted(names: Sequence[str]) -> dict[str, Any]:
    """How the labels of a horizontal axis stand: upright where all are short, else tilted."""
    return {} if max(map(len, names), default=0) <= 3 else {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}


def similarity_rounds_figure(matrices: Mapping[int, Any], title: str = "") -> Figure:
    """Client similarity over the rounds: one small matrix for each round, all on one colour scale."""
    if not matrices:
        raise FedquiltError("There are no similarity matrices to draw.")
    return matrices_figure({f"Round {number}": matrix for number, matrix in sorted(matrices.items())}, title)


def matrices_figure(matrices: Mapping[str, Any], title: str = "", panel: float = 1.55, ticks: bool = False) -> Figure:
    """A small matrix for each name, all on one colour scale, up to five in a row, each `panel` inches wide."""
    squares = {name: _square(matrix) for name, matrix in matrices.items()}
    rows = math.ceil(len(squares) / 5)
    columns = math.ceil(len(squares) / rows)
    with style.styled():
        figure = style.new_figure(0.9 + panel * columns, 0.35 + (panel + 0.15) * rows)
        grid = figure.subplots(rows, columns, squeeze=False)
        low, high = span(list(squares.values()))
        for axes, (name, square) in zip(grid.flat, squares.items(), strict=False):
            image = draw_matrix(axes, square, low, high)
            axes.set_title(name, fontsize=8.5, fontweight="normal", loc="center")
            if ticks:
                axes.tick_params(labelsize=6)
            else:
                axes.set_xticks([])
                axes.set_yticks([])
        for axes in list(grid.flat)[len(squares) :]:
            axes.set_axis_off()
        figure.supxlabel("Client", fontsize=9)
        figure.supylabel("Client", fontsize=9)
        if title:
            figure.suptitle(title, fontsize=10, fontweight="bold")
        extend = arrows(list(squares.values()), low, high)
        bar = figure.colorbar(image, ax=grid, shrink=0.9, aspect=18 * rows, extend=extend)
        plain_bar(bar, "Similarity")
        return figure


def draw_group_lines(axes: Axes, groups: Sequence[Any]) -> None:
    """Draw lines in a matrix between one group of clients and the next."""
    for edge in np.flatnonzero([a != b for a, b in itertools.pairwise(groups)]) + 0.5:
        axes.axhline(edge, color="white", linewidth=1.6 if len(groups) <= 50 else 0.9)
        axes.axvline(edge, color="white", linewidth=1.6 if len(groups) <= 50 else 0.9)


def _square(matrix: Any) -> np.ndarray:
    square = np.asarray(matrix, dtype=float)
    if square.ndim != 2 or square.shape[0] != square.shape[1] or not square.size:
        shape = " x ".join(map(str, square.shape))
        raise FedquiltError(f"A similarity matrix has a row and a column for each client, but this one is {shape}.")
    return square


def span(squares: Sequence[np.ndarray]) -> tuple[float, float]:
    """The range of the finite values off the diagonals (of all values, where there is nothing off them)."""
    others = np.concatenate([square[~np.eye(len(square), dtype=bool)] for square in squares])
    others = others[np.isfinite(others)]
    if not others.size:
        others = np.concatenate([square[np.isfinite(square)] for square in squares])
    if not others.size:
        return 0.0, 1.0
    low, high = float(others.min()), float(others.max())
    # Values that differ by rounding alone are one value, and should be one colour.
    return (low, high) if high - low > 1e-6 * max(1.0, abs(high)) else (low - 0.5, high + 0.5)


def arrows(squares: Sequence[np.ndarray], low: float, high: float) -> str:
    """Which ends of the colour bar get an arrow, because some value (on the diagonal) lies beyond."""
    over = any(np.nanmax(square) > high for square in squares)
    under = any(np.nanmin(square) < low for square in squares)
    return {(True, True): "both", (True, False): "max", (False, True): "min"}.get((over, under), "neither")


def draw_matrix(axes: Axes, square: np.ndarray, low: float, high: float) -> Any:
    """A matrix as coloured cells on axes, the colours from `low` to `high`; the image, for a colour bar."""
    import matplotlib
    from matplotlib.ticker import MaxNLocator

    colours = matplotlib.colormaps[style.HEAT].with_extremes(bad=style.PALE)
    image = axes.imshow(square, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if len(square) <= 12:
        axes.set_xticks(range(len(square)))
        axes.set_yticks(range(len(square)))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=_STEPS))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=_STEPS))
    return image


def _write_cells(axes: Axes, square: np.ndarray, low: float, high: float) -> None:
    """The numbers in the cells, in white on the dark half of the scale."""
    for (row, column), value in np.ndenumerate(square):
        if math.isfinite(value):
            dark = value < low + 0.6 * (high - low)
            axes.text(
                column,
                row,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=6,
                color="white" if dark else style.INK,
            )


def plain_bar(bar: Any, label: str) -> None:
    """Give a colour bar the look that all figures share, and its label."""
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)
    bar.set_label(label)


def _table(values: Any) -> np.ndarray:
    """values[seed][client] as an array, None as NaN."""
    rows = [[math.nan if value is None else float(value) for value in row] for row in values]
    if not rows or not rows[0] or len({len(row) for row in rows}) != 1:
        raise FedquiltError("Each seed needs a value for each client, and all seeds the same clients.")
    return np.array(rows)


def _baseline(baseline: Any, clients: int) -> np.ndarray:
    """The baseline of each client: the number itself, or the mean over seeds."""
    if np.ndim(baseline) == 0:
        return np.full(clients, float(baseline))
    mean, _ = mean_and_std(_table(baseline))
    if len(mean) != clients:
        raise FedquiltError(f"The baseline has {len(mean)} clients, but there are {clients}.")
    return mean
