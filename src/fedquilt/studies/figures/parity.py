"""Statistics of graphs, of which neither higher nor lower is better: ours against the published ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fedquilt.reports import style
from fedquilt.studies.figures.layout import SMALL, TEXT, column_count, legend, new_panels, plain, split_pages, wrapped
from fedquilt.studies.figures.request import MARKERS
from fedquilt.studies.summary import Entry, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDE = 50.0  # from this ratio of highest to lowest on the axes are logarithmic


def parity(summary: Summary, values: Sequence[str]) -> Iterator[Figure]:
    """Draw a panel for each value; on the diagonal, our number equals the published one."""
    panels = []
    for value in values:
        both = [entry for entry in summary.of(value) if not math.isnan(entry.difference)]
        if both:
            panels.append((value, both))
    for page in split_pages(panels):
        yield _figure(summary, page)


def _figure(summary: Summary, page: Sequence[tuple[str, list[Entry]]]) -> Figure:
    from matplotlib.lines import Line2D

    rows = list(dict.fromkeys(summary.row(entry.at) for _, entries in page for entry in entries))
    columns = column_count(len(page))
    figure, places = new_panels(len(page), columns, 2.3, 0.4)
    for place, (axes, (value, entries)) in enumerate(zip(places, page, strict=True)):
        _draw(axes, [(entry, rows.index(summary.row(entry.at))) for entry in entries])
        axes.set_title(wrapped(plain(summary.study.values[value]), 2.0), fontsize=TEXT)
        if place + columns >= len(page):
            axes.set_xlabel("Published", fontsize=TEXT)
        if place % columns == 0:
            axes.set_ylabel("Ours", fontsize=TEXT)
    keys = [
        Line2D([], [], linestyle="none", marker=_marker(n), color=style.colour(n), label=plain(" / ".join(row)))
        for n, row in enumerate(rows)
    ]
    legend(figure, keys)
    return figure


def _draw(axes: Axes, points: Sequence[tuple[Entry, int]]) -> None:
    numbers = [x for entry, _ in points for x in (entry.mean, entry.printed)]
    low, high = min(numbers), max(numbers)
    end = high if high > low else low + 1.0
    axes.axline((low, low), (end, end), color=style.GREY, linewidth=0.8, linestyle=(0, (4, 2)))
    for entry, number in points:
        axes.plot(
            entry.printed,
            entry.mean,
            color=style.colour(number),
            marker=_marker(number),
            markersize=4.5,
            markeredgecolor="white",
            markeredgewidth=0.4,
            linestyle="none",
        )
    if low > 0 and high / low > _WIDE:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_aspect("equal", adjustable="datalim")
    axes.tick_params(labelsize=SMALL)


def _marker(number: int) -> str:
    return MARKERS[number % len(MARKERS)]
