"""Convergence curves: the test metric by round, a panel for each place and a line for each level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.runs.folder import SeedFolder
from fedquilt.studies.figures.layout import caption, column_count, legend, legend_height, new_panels, split_pages
from fedquilt.studies.figures.request import FigureRequest, Panel
from fedquilt.studies.summary import Entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = 6  # markers on a line
_DEEP = 3.0  # the y axis spans at most so many times the range of the later half of the rounds


@dataclass(frozen=True)
class Curve:
    """Rounds [R], counted from 1, and mean [R] and standard deviation [R] over seeds after each."""

    rounds: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def convergence(request: FigureRequest) -> Iterator[Figure]:
    """Draw the figures, with up to twelve panels each and the same colours in all."""
    found = [(panel, _curves(request, panel)) for panel in request.panels(request.by)]
    for page in split_pages([(panel, curves) for panel, curves in found if curves]):
        yield _figure(request, page)


def read_curve(entry: Entry) -> Curve | None:
    """The curve of an entry's cells over the rounds that all seeds have; None where no round was evaluated."""
    by_round: dict[int, list[float]] = {}
    seeds = 0
    for seed, cell in entry.cells.items():
        records = SeedFolder(cell.folder / f"seed-{seed}").records()
        known = {record["round"] + 1: record["test"] for record in records if record.get("test") is not None}
        seeds += bool(known)
        for number, value in known.items():
            by_round.setdefault(number, []).append(value)
    rounds = sorted(number for number, values in by_round.items() if len(values) == seeds)
    if not rounds:
        return None
    values = np.array([by_round[number] for number in rounds])
    return Curve(np.array(rounds), values.mean(1), values.std(1))


def _curves(request: FigureRequest, panel: Panel) -> dict[str, Curve]:
    curves = ((request.level(entry), read_curve(entry)) for entry in panel.entries)
    return {label: curve for label, curve in curves if curve is not None}


def _figure(request: FigureRequest, page: Sequence[tuple[Panel, Mapping[str, Curve]]]) -> Figure:
    from matplotlib.lines import Line2D

    there = {label for _, curves in page for label in curves}
    shown = [label for label in request.levels(request.entries) if label in there]
    columns = column_count(len(page))
    labels = [request.legend_label(label) for label in shown]
    figure, places = new_panels(len(page), columns, 2.5 if columns == 1 else 1.9, legend_height(labels, columns))
    for axes, (_, curves) in zip(places, page, strict=True):
        last = max(int(curve.rounds[-1]) for curve in curves.values())
        for label in shown:
            if label in curves:
                _draw(axes, request, label, _extended(curves[label], last))
        _frame(axes, curves)
    caption(places, [panel.title for panel, _ in page], columns, "Round", request.heading)
    keys = [
        Line2D([], [], markersize=4, label=name, **_style(request, k)) for k, name in zip(shown, labels, strict=True)
    ]
    legend(figure, keys)
    return figure


def _draw(axes: Axes, request: FigureRequest, label: str, curve: Curve) -> None:
    """Draw a line with a few markers, at other rounds than those of other lines, and a band of one standard deviation."""
    position, colour = request.positions[label], request.colour(label)
    step = max(1, len(curve.rounds) // _MARKS)
    axes.plot(
        curve.rounds,
        curve.mean,
        **_style(request, label),
        markersize=3.6,
        markeredgecolor="white",
        markeredgewidth=0.4,
        markevery=((position * 5) % step, step) if len(curve.rounds) > 2 else None,
        zorder=4 if label == request.own_method else 3,
        label=request.legend_label(label) or "_only",
    )
    if curve.std.any():
        low, high = curve.mean - curve.std, curve.mean + curve.std
        axes.fill_between(curve.rounds, low, high, color=colour, alpha=0.15, linewidth=0, zorder=2)


def _frame(axes: Axes, curves: Mapping[str, Curve]) -> None:
    """Set ticks and limits. Low values of the first rounds may be cut off, so that the later rounds can be seen."""
    from matplotlib.ticker import MaxNLocator

    late = min(float((curve.mean - curve.std)[len(curve.mean) // 2 :].min()) for curve in curves.values())
    high = max(float((curve.mean + curve.std).max()) for curve in curves.values())
    low = max(min(float(curve.mean.min()) for curve in curves.values()), high - _DEEP * (high - late))
    low = min(low, late)
    margin = 0.05 * (high - low) or 1.0
    axes.set_ylim(low - margin, high + margin)
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, steps=(1, 2, 2.5, 5, 10)))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=(1, 2, 2.5, 5, 10)))
    axes.grid(axis="y")


def _extended(curve: Curve, last: int) -> Curve:
    """The curve of a method with a single round as a horizontal line to round `last`; any other curve as it is."""
    if len(curve.rounds) > 1 or last == 1:
        return curve
    return Curve(np.array([1, last]), np.repeat(curve.mean, 2), np.repeat(curve.std, 2))


def _style(request: FigureRequest, label: str) -> dict[str, Any]:
    return {
        "color": request.colour(label),
        "linestyle": request.dash(label),
        "linewidth": 2.0 if label == request.own_method else 1.0,
        "marker": request.marker(label),
    }
