"""The overview of a study: a dot plot of the rows for each column of its table, our numbers beside the published ones.

The reference row is shaded, and a line marks its mean in each column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedquilt.reports import style
from fedquilt.studies.figures.layout import (
    NARROW,
    OPEN,
    SMALL,
    TEXT,
    WIDTH,
    legend,
    legend_height,
    level_name,
    number,
    plain,
    wrapped,
)
from fedquilt.studies.figures.parity import parity
from fedquilt.studies.figures.request import MARKERS
from fedquilt.studies.significance import reference_row
from fedquilt.studies.summary import Entry, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_SERIES = 5  # levels of the last column axis in one panel
_TALLEST = 8.6  # height of a page in inches
_FENCE = 3.0  # numbers more than so many interquartile ranges below the first quartile do not extend the axis,
_FAR_BELOW = 0.1  # if they are below it by more than this share of it
_EDGE = 0.02  # the distance of an arrow from the end of the axis, as a share of the axis
_FAR = "_far"


@dataclass(frozen=True)
class Dots:
    """A panel: its title, the drawn value, its entries, and the axis whose levels differ by colour, if any."""

    title: str
    value: str
    entries: list[Entry]
    series: str | None


def overview(summary: Summary) -> Iterator[Figure]:
    """Draw the overview, a figure for each page; none where no cell is done."""
    study = summary.study
    scored = [value for value in study.values if study.better.get(value, "higher") != "neither"]
    panels = [panel for value in scored for panel in _panels(summary, value)]
    if panels:
        yield from _pages(summary, panels)
    yield from parity(summary, [value for value in study.values if value not in scored])


def _panels(summary: Summary, value: str) -> list[Dots]:
    """A panel for each column; columns that differ in the last axis only share one where they are few."""
    axes = [*summary.study.tables, *summary.study.columns]
    series = axes[-1] if len(axes) > 1 and len(summary.study.axes[axes[-1]]) <= _MOST_SERIES else None
    outside = [axis for axis in axes if axis != series]
    places: dict[tuple[str, ...], list[Entry]] = {}
    for entry in summary.of(value):
        if entry.by_seed or not math.isnan(entry.printed):
            places.setdefault(tuple(entry.at[axis] for axis in outside), []).append(entry)
    order = [summary.study.axes[axis] for axis in outside]
    ranked = sorted(
        places, key=lambda p: [[x.label for x in levels].index(at) for at, levels in zip(p, order, strict=True)]
    )
    return [
        Dots(", ".join(level_name(a, at) for a, at in zip(outside, place, strict=True)), value, places[place], series)
        for place in ranked
        if any(entry.by_seed for entry in places[place])
    ]


def _pages(summary: Summary, panels: list[Dots]) -> Iterator[Figure]:
    rows = _rows(summary, panels)
    wide = max(len(" / ".join(row)) for row in rows) * 0.055
    columns = min(len(panels), 3 if wide < 1.6 else 2)
    columns = 2 if len(panels) == 4 else columns
    series = max(len({e.at[p.series] for e in p.entries}) if p.series else 1 for p in panels)
    height = max(1.3, 0.7 + len(rows) * max(0.145, 0.068 * series))
    deep = max(1, int(_TALLEST / height))
    size = columns * deep
    for first in range(0, len(panels), size):
        yield _figure(summary, panels[first : first + size], rows, columns, height)


def _rows(summary: Summary, panels: Sequence[Dots]) -> list[tuple[str, ...]]:
    """The rows that have an entry, in the order of the table."""
    there = {summary.row(entry.at) for panel in panels for entry in panel.entries}
    return [row for row in dict.fromkeys(summary.row(at) for at in summary.study.places()) if row in there]


def _figure(
    summary: Summary, panels: Sequence[Dots], rows: Sequence[tuple[str, ...]], columns: int, height: float
) -> Figure:
    keys = _keys(summary, panels)
    deep = math.ceil(len(panels) / columns)
    wide = WIDTH if columns > 1 else NARROW + 0.6
    below = legend_height([str(key.get_label()) for key in keys], columns)
    figure = style.new_figure(wide, deep * height + below)
    places = list(figure.subplots(deep, columns, squeeze=False).flat)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    names = [plain(" / ".join(row)) for row in rows]
    for place, (axes, panel) in enumerate(zip(places, panels, strict=False)):
        _draw(axes, summary, panel, rows)
        axes.set_title(wrapped(panel.title, wide / columns), fontsize=TEXT)
        axes.set_yticks(range(len(rows)), names if place % columns == 0 else [], fontsize=SMALL)
        if place % columns == 0 and any(number(label) is not None for row in rows for label in row):
            axes.set_ylabel(wrapped(plain(" / ".join(summary.study.rows)).replace("_", " "), height), fontsize=TEXT)
        _name_axis(axes, summary, panels, place, columns)
        reference = reference_row(summary, panel.value)
        for row, tick in zip(rows, axes.get_yticklabels(), strict=False):
            tick.set_fontweight("bold" if " / ".join(row) == reference else "normal")
    far = any(line.get_label() == _FAR for axes in places for line in axes.get_lines())
    legend(figure, [*keys, *([_far_key()] if far else [])])
    return figure


def _far_key() -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color="#555555", marker="<", markersize=4, linestyle="none", label="beyond the axis")


def _name_axis(axes: Axes, summary: Summary, panels: Sequence[Dots], place: int, columns: int) -> None:
    """Name the x axis and the direction that is better, unless the panel below shows the same value."""
    value = panels[place].value
    below = panels[place + columns].value if place + columns < len(panels) else None
    if value != below:
        lower = summary.study.better.get(value, "higher") == "lower"
        name = wrapped(plain(summary.study.values[value]), 2.0)
        axes.set_xlabel(f"← {name}" if lower else f"{name} →", fontsize=TEXT)


def _draw(axes: Axes, summary: Summary, panel: Dots, rows: Sequence[tuple[str, ...]]) -> None:
    series = _series(summary, panel)
    low, high = _limits(panel.entries)
    reference = reference_row(summary, panel.value)
    room = 0.74 / len(series)
    for entry in panel.entries:
        row, position = summary.row(entry.at), series.index(entry.at[panel.series] if panel.series else "")
        y = rows.index(row) + room * (position - (len(series) - 1) / 2)
        if " / ".join(row) == reference and entry.by_seed:
            look: Any = {"color": style.colour(position), "linewidth": 0.8, "linestyle": (0, (4, 2))}
            axes.axvline(entry.mean, alpha=0.75, zorder=1, label="_reference", **look)
        _draw_entry(axes, entry, y, position, (low, high))
    for place, row in enumerate(rows):
        if " / ".join(row) == reference:
            axes.axhspan(place - 0.5, place + 0.5, color=style.PALE, alpha=0.55, linewidth=0, zorder=0)
        elif place:
            axes.axhline(place - 0.5, color="#EEEEEE", linewidth=0.5, zorder=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(low, high)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=SMALL)
    axes.grid(axis="x")


def _draw_entry(axes: Axes, entry: Entry, y: float, position: int, limits: tuple[float, float]) -> None:
    """Draw our mean and standard deviation, the published number, and a thin line between the two."""
    colour = style.colour(position)
    if not math.isnan(entry.difference):
        axes.plot((entry.printed, entry.mean), (y, y), color=colour, linewidth=0.6, alpha=0.6, zorder=2, label="_gap")
    if entry.by_seed and not _edge(axes, entry.mean, y, limits, {"color": colour}):
        look: Any = {"color": colour, "marker": MARKERS[position], "markersize": 3.6, "elinewidth": 0.9, "zorder": 4}
        axes.errorbar(entry.mean, y, xerr=entry.std, linestyle="none", **look, label="_ours")
    if not math.isnan(entry.printed):
        hollow: Any = {"color": colour, "markersize": 3.4, "markeredgewidth": 0.8, "zorder": 3}
        if not _edge(axes, entry.printed, y, limits, {"color": colour, "markerfacecolor": "white"}):
            axes.plot(entry.printed, y, **OPEN, **hollow, label="_published")


def _edge(axes: Axes, x: float, y: float, limits: tuple[float, float], look: dict[str, Any]) -> bool:
    """Draw an arrow at the edge for a number outside the limits; whether it was outside."""
    inside = _EDGE * (limits[1] - limits[0])
    low, high = limits[0] + inside, limits[1] - inside
    if low <= x <= high:
        return False
    at, marker = (low, "<") if x < low else (high, ">")
    axes.plot(at, y, marker=marker, linestyle="none", markersize=3.6, markeredgewidth=0.7, zorder=4, label=_FAR, **look)
    return True


def _limits(entries: Sequence[Entry]) -> tuple[float, float]:
    """The limits of the axis: all numbers but outliers on the bad side, which would leave little room for the others."""
    sign = -1.0 if entries[0].better == "lower" else 1.0
    spans = [(sign * e.mean, 0.0 if math.isnan(e.std) else e.std) for e in entries if e.by_seed]
    spans += [(sign * e.printed, 0.0) for e in entries if not math.isnan(e.printed)]
    first, third = np.percentile([x for x, _ in spans], (25, 75))
    fence = max(_FENCE * (third - first), _FAR_BELOW * abs(first), 1e-9)
    near = [(x - std, x + std) for x, std in spans if x >= first - fence]
    low, high = min(low for low, _ in near), max(high for _, high in near)
    margin = 0.05 * (high - low) or 0.5
    low, high = sorted((sign * (low - margin), sign * (high + margin)))
    return low, high


def _series(summary: Summary, panel: Dots) -> list[str]:
    if panel.series is None:
        return [""]
    return [level.label for level in summary.study.axes[panel.series]]


def _keys(summary: Summary, panels: Sequence[Dots]) -> list[Any]:
    from matplotlib.lines import Line2D

    grey, entries = "#555555", [entry for panel in panels for entry in panel.entries]
    keys = []
    series = panels[0].series
    if series is not None:
        there = {entry.at[series] for entry in entries}
        for position, label in enumerate(_series(summary, panels[0])):
            if label in there:
                dot: Any = {"color": style.colour(position), "marker": MARKERS[position], "markersize": 4.5}
                keys.append(Line2D([], [], linestyle="none", label=level_name(series, label), **dot))
    deviates = any(not math.isnan(entry.std) for entry in entries)
    ours = "ours ± standard deviation" if deviates else "ours"
    keys.append(Line2D([], [], color=grey, marker="o", markersize=4, linewidth=0.9 if deviates else 0.0, label=ours))
    if any(not math.isnan(entry.printed) for entry in entries):
        keys.append(Line2D([], [], color=grey, markersize=4, **OPEN, label="published"))
    references = {name for panel in panels if (name := reference_row(summary, panel.value)) is not None}
    if references:
        name = plain(next(iter(references))) if len(references) == 1 else "the shaded row"
        keys.append(Line2D([], [], color=grey, linewidth=0.8, linestyle=(0, (4, 2)), label=f"{name}, our mean"))
    return keys
