"""Bars: a value for each level of an axis, a bar for each level of another, what is printed as an open diamond."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fedquilt.reports import style
from fedquilt.studies.figures.lines import PUBLISHED
from fedquilt.studies.figures.page import (
    OPEN,
    SMALL,
    WIDTH,
    Panel,
    Wanted,
    caption,
    grid,
    legend,
    legend_height,
    numbered,
    pages,
    plain,
    usual_columns,
    wrapped,
)
from fedquilt.studies.summary import Entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 0.1  # inches that a bar needs
_FULL = 0.8  # of a group's room is filled with bars
_WIDEST = 0.3  # of it with one bar


def bars(wanted: Wanted) -> Iterator[Figure]:
    """Figures with up to twelve panels each; colours are the same in all."""
    for page in pages(numbered(wanted.panels(wanted.by, wanted.asked.x))):
        yield _figure(wanted, page)


def _figure(wanted: Wanted, page: Sequence[Panel]) -> Figure:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    assert wanted.asked.x is not None
    entries = [entry for panel in page for entry in panel.entries]
    shown, along = wanted.levels(entries), wanted.along(entries, wanted.asked.x)
    room = 0.6 + _BAR * len(along) * (len(shown) + 1)
    columns = max(1, min(usual_columns(len(page)), int(WIDTH / room)))
    printed = any(not math.isnan(entry.printed) for entry in entries)
    labels = [*(wanted.named(label) for label in shown), *([PUBLISHED] if printed else [])]
    figure, places = grid(len(page), columns, 2.2 if columns == 1 else 1.9, legend_height(labels, columns))
    if columns == 1 and room > figure.get_figwidth():
        figure.set_figwidth(WIDTH)
    spans = [_span(panel.entries) for panel in page]
    cut = all(0.99 * high > low > 0.5 * high for low, high in spans)
    for axes, panel, span in zip(places, page, spans, strict=True):
        _draw(axes, wanted, panel, shown, along)
        _frame(axes, span, cut)
        wide = figure.get_figwidth() / columns / len(along)
        names = [wrapped(plain(label), wide) for label in along]
        axes.set_xticks(range(len(along)), names, fontsize=SMALL)
        axes.set_xlim(-0.5, len(along) - 0.5)
    caption(places, [panel.title for panel in page], columns, _axis_name(wanted, along), wanted.heading)
    keys: list[Any] = [Patch(label=n, **_look(wanted, k)) for k, n in zip(shown, labels, strict=False)]
    if printed:
        keys.append(Line2D([], [], color=style.INK, markersize=4, label=PUBLISHED, **OPEN))
    legend(figure, keys)
    return figure


def _draw(axes: Axes, wanted: Wanted, panel: Panel, shown: Sequence[str], along: Sequence[str]) -> None:
    """A bar where something of ours is, a diamond where something is printed; a level's place in a group is always the same."""
    assert wanted.asked.x is not None
    full = min(_FULL, _WIDEST * len(shown))
    width = full / len(shown)
    for entry in panel.entries:
        place = along.index(entry.at[wanted.asked.x]) + width * (shown.index(wanted.level(entry)) + 0.5) - full / 2
        if entry.by_seed:
            axes.bar(place, entry.mean, width=width * 0.94, **_look(wanted, wanted.level(entry)))
            if not math.isnan(entry.std):
                axes.errorbar(place, entry.mean, entry.std, fmt="none", ecolor=style.INK, elinewidth=0.8, capsize=1.5)
        if not math.isnan(entry.printed):
            look = {**OPEN, "color": style.INK, "markersize": 3.8, "markeredgewidth": 0.8, "zorder": 5}
            axes.plot(place, entry.printed, label=f"_{PUBLISHED}", **look)


def _look(wanted: Wanted, label: str) -> dict[str, Any]:
    return {
        "facecolor": wanted.colour(label),
        "hatch": wanted.hatch(label),
        "edgecolor": "white",
        "linewidth": 0.0,
    }


def _span(entries: Sequence[Entry]) -> tuple[float, float]:
    """From the least to the greatest of all means, whiskers and printed numbers."""
    ends = [end for e in entries for end in (e.mean, e.printed, e.mean - e.std, e.mean + e.std) if not math.isnan(end)]
    return min(ends), max(ends)


def _frame(axes: Axes, span: tuple[float, float], cut: bool) -> None:
    """The axis begins at 0, or shortly below the shortest bar where bars would all look alike; then its foot is broken."""
    from matplotlib.ticker import MaxNLocator

    low, high = span
    foot = max(0.0, low - 0.3 * max(high - low, 0.04 * high)) if cut else min(0.0, low)
    top = high + 0.06 * (high - foot)
    locator = MaxNLocator(nbins=5, steps=(1, 2, 5, 10))
    if foot > 0:  # no tick where the foot is broken
        lowest = min(tick for tick in locator.tick_values(foot, top) if tick >= foot)
        foot = min(foot, lowest - 0.1 * (top - foot))
        look: Any = {"marker": [(-1.0, -0.6), (1.0, 0.6)], "markersize": 7, "color": style.INK, "clip_on": False}
        axes.plot((0, 0), (0.025, 0.06), transform=axes.transAxes, linestyle="none", label="_break", **look)
    axes.set_ylim(foot, top)
    axes.yaxis.set_major_locator(locator)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y")


def _axis_name(wanted: Wanted, along: Sequence[str]) -> str:
    """Numbers say of what they are; names speak for themselves."""
    numbers = all(label.replace(".", "", 1).strip("%").isdigit() for label in along)
    return plain((wanted.asked.x or "").replace("_", " ").capitalize()) if numbers else ""
