"""Convergence: the test metric by round, a panel for each place and a line for each level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.runs.folder import SeedFolder
from fedquilt.studies.figures.page import Panel, Wanted, caption, grid, legend, legend_height, pages, usual_columns
from fedquilt.studies.summary import Entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = 6  # markers on a line
_DEEP = 3.0  # times the range of the later half of the rounds: what starts lower leaves the panel


@dataclass(frozen=True)
class Curve:
    """Rounds from 1, and over seeds the mean and the standard deviation after each."""

    rounds: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def convergence(wanted: Wanted) -> Iterator[Figure]:
    """Figures with up to twelve panels each; colours are the same in all."""
    found = [(panel, _curves(wanted, panel)) for panel in wanted.panels(wanted.by)]
    for page in pages([(panel, curves) for panel, curves in found if curves]):
        yield _figure(wanted, page)


def read_curve(entry: Entry) -> Curve | None:
    """The curve of an entry's cells, over the rounds that all its seeds have; None where there are no records."""
    by_round: dict[int, list[float]] = {}
    seeds = 0
    for seed, kept in entry.kept.items():
        records = SeedFolder(kept.folder / f"seed-{seed}").records()
        known = {record["round"] + 1: record["test"] for record in records if record.get("test") is not None}
        seeds += bool(known)
        for number, value in known.items():
            by_round.setdefault(number, []).append(value)
    rounds = sorted(number for number, values in by_round.items() if len(values) == seeds)
    if not rounds:
        return None
    values = np.array([by_round[number] for number in rounds])
    return Curve(np.array(rounds), values.mean(1), values.std(1))


def _curves(wanted: Wanted, panel: Panel) -> dict[str, Curve]:
    curves = ((wanted.level(entry), read_curve(entry)) for entry in panel.entries)
    return {label: curve for label, curve in curves if curve is not None}


def _figure(wanted: Wanted, page: Sequence[tuple[Panel, Mapping[str, Curve]]]) -> Figure:
    from matplotlib.lines import Line2D

    there = {label for _, curves in page for label in curves}
    shown = [label for label in wanted.levels(wanted.entries) if label in there]
    columns = usual_columns(len(page))
    labels = [wanted.named(label) for label in shown]
    figure, places = grid(len(page), columns, 2.5 if columns == 1 else 1.9, legend_height(labels, columns))
    for axes, (_, curves) in zip(places, page, strict=True):
        last = max(int(curve.rounds[-1]) for curve in curves.values())
        for label in shown:
            if label in curves:
                _draw(axes, wanted, label, _stretched(curves[label], last))
        _frame(axes, curves)
    caption(places, [panel.title for panel, _ in page], columns, "Round", wanted.heading)
    keys = [Line2D([], [], markersize=4, label=name, **_look(wanted, k)) for k, name in zip(shown, labels, strict=True)]
    legend(figure, keys)
    return figure


def _draw(axes: Axes, wanted: Wanted, label: str, curve: Curve) -> None:
    """A line with a few markers, no two lines' at the same rounds, and a band of one deviation."""
    position, colour = wanted.positions[label], wanted.colour(label)
    step = max(1, len(curve.rounds) // _MARKS)
    axes.plot(
        curve.rounds,
        curve.mean,
        **_look(wanted, label),
        markersize=3.6,
        markeredgecolor="white",
        markeredgewidth=0.4,
        markevery=((position * 5) % step, step) if len(curve.rounds) > 2 else None,
        zorder=4 if label == wanted.own else 3,
        label=wanted.named(label) or "_only",
    )
    if curve.std.any():
        low, high = curve.mean - curve.std, curve.mean + curve.std
        axes.fill_between(curve.rounds, low, high, color=colour, alpha=0.15, linewidth=0, zorder=2)


def _frame(axes: Axes, curves: Mapping[str, Curve]) -> None:
    """Ticks and limits: the steep first rounds may leave the panel below, so that the rest can be told apart."""
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


def _stretched(curve: Curve, last: int) -> Curve:
    """What needs one round only as a level line beside the others."""
    if len(curve.rounds) > 1 or last == 1:
        return curve
    return Curve(np.array([1, last]), np.repeat(curve.mean, 2), np.repeat(curve.std, 2))


def _look(wanted: Wanted, label: str) -> dict[str, Any]:
    return {
        "color": wanted.colour(label),
        "linestyle": wanted.dash(label),
        "linewidth": 2.0 if label == wanted.own else 1.0,
        "marker": wanted.marker(label),
    }
