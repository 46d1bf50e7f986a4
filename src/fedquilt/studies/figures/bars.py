"""Bar charts: a group for each level of an axis, a bar for each level of another, published numbers as open diamonds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fedquilt.reports import style
from fedquilt.studies.figures.layout import (
    OPEN,
    SMALL,
    WIDTH,
    caption,
    column_count,
    legend,
    legend_height,
    new_panels,
    plain,
    split_pages,
    wrapped,
)
from fedquilt.studies.figures.lines import PUBLISHED
from fedquilt.studies.figures.request import FigureRequest, Panel, panels_with_numbers
from fedquilt.studies.summary import Entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 0.1  # the width of a bar in inches
_FULL = 0.8  # the share of a group's width that bars fill
_WIDEST = 0.3  # the share of it that one bar fills at most


def bars(request: FigureRequest) -> Iterator[Figure]:
    """Draw the figures, with up to twelve panels each and the same colours in all."""
    for page in split_pages(panels_with_numbers(request.panels(request.by, request.spec.x))):
        yield _figure(request, page)


def _figure(request: FigureRequest, page: Sequence[Panel]) -> Figure:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    assert request.spec.x is not None
    entries = [entry for panel in page for entry in panel.entries]
    shown, along = request.levels(entries), request.levels_along(request.spec.x, entries)
    room = 0.6 + _BAR * len(along) * (len(shown) + 1)
    columns = max(1, min(column_count(len(page)), int(WIDTH / room)))
    printed = any(not math.isnan(entry.printed) for entry in entries)
    labels = [*(request.legend_label(label) for label in shown), *([PUBLISHED] if printed else [])]
    figure, places = new_panels(len(page), columns, 2.2 if columns == 1 else 1.9, legend_height(labels, columns))
    if columns == 1 and room > figure.get_figwidth():
        figure.set_figwidth(WIDTH)
    spans = [_span(panel.entries) for panel in page]
    cut = all(0.99 * high > low > 0.5 * high for low, high in spans)
    for axes, panel, span in zip(places, page, spans, strict=True):
        _draw(axes, request, panel, shown, along)
        _frame(axes, span, cut)
        wide = figure.get_figwidth() / columns / len(along)
        names = [wrapped(plain(label), wide) for label in along]
        axes.set_xticks(range(len(along)), names, fontsize=SMALL)
        axes.set_xlim(-0.5, len(along) - 0.5)
    caption(places, [panel.title for panel in page], columns, _axis_name(request, along), request.heading)
    keys: list[Any] = [Patch(label=n, **_style(request, k)) for k, n in zip(shown, labels, strict=False)]
    if printed:
        keys.append(Line2D([], [], color=style.INK, markersize=4, label=PUBLISHED, **OPEN))
    legend(figure, keys)
    return figure


def _draw(axes: Axes, request: FigureRequest, panel: Panel, shown: Sequence[str], along: Sequence[str]) -> None:
    """Draw a bar for each number of ours and a diamond for each published one. A level has the same position in all groups."""
    assert request.spec.x is not None
    full = min(_FULL, _WIDEST * len(shown))
    width = full / len(shown)
    for entry in panel.entries:
        place = along.index(entry.at[request.spec.x]) + width * (shown.index(request.level(entry)) + 0.5) - full / 2
        if entry.by_seed:
            axes.bar(place, entry.mean, width=width * 0.94, **_style(request, request.level(entry)))
            if not math.isnan(entry.std):
                axes.errorbar(place, entry.mean, entry.std, fmt="none", ecolor=style.INK, elinewidth=0.8, capsize=1.5)
        if not math.isnan(entry.printed):
            look = {**OPEN, "color": style.INK, "markersize": 3.8, "markeredgewidth": 0.8, "zorder": 5}
            axes.plot(place, entry.printed, label=f"_{PUBLISHED}", **look)


def _style(request: FigureRequest, label: str) -> dict[str, Any]:
    return {
        "facecolor": request.colour(label),
        "hatch": request.hatch(label),
        "edgecolor": "white",
        "linewidth": 0.0,
    }


def _span(entries: Sequence[Entry]) -> tuple[float, float]:
    """The lowest and the highest of all means, whiskers and published numbers."""
    ends = [end for e in entries for end in (e.mean, e.printed, e.mean - e.std, e.mean + e.std) if not math.isnan(end)]
    return min(ends), max(ends)


def _frame(axes: Axes, span: tuple[float, float], cut: bool) -> None:
    """Set the limits of the y axis: from 0, or with `cut` from just below the shortest bar, with a break mark."""
    from matplotlib.ticker import MaxNLocator

    low, high = span
    bottom = max(0.0, low - 0.3 * max(high - low, 0.04 * high)) if cut else min(0.0, low)
    top = high + 0.06 * (high - bottom)
    locator = MaxNLocator(nbins=5, steps=(1, 2, 5, 10))
    if bottom > 0:  # no tick at the break
        lowest = min(tick for tick in locator.tick_values(bottom, top) if tick >= bottom)
        bottom = min(bottom, lowest - 0.1 * (top - bottom))
        look: Any = {"marker": [(-1.0, -0.6), (1.0, 0.6)], "markersize": 7, "color": style.INK, "clip_on": False}
        axes.plot((0, 0), (0.025, 0.06), transform=axes.transAxes, linestyle="none", label="_break", **look)
    axes.set_ylim(bottom, top)
    axes.yaxis.set_major_locator(locator)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y")


def _axis_name(request: FigureRequest, along: Sequence[str]) -> str:
    """The name of the x axis where its labels are numbers, else empty."""
    numbers = all(label.replace(".", "", 1).strip("%").isdigit() for label in along)
    return plain((request.spec.x or "").replace("_", " ").capitalize()) if numbers else ""
