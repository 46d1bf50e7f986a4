"""Lines: a value along an axis, ours with whiskers, what is printed beside it with open markers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedquilt.studies.figures.page import (
    NARROW,
    SMALL,
    WIDTH,
    Panel,
    Wanted,
    caption,
    grid,
    legend,
    legend_height,
    number,
    numbered,
    pages,
    plain,
    usual_columns,
)
from fedquilt.studies.summary import Entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CLOSE = 0.05  # of the axis: ticks that are nearer would touch
PUBLISHED = "published"
_DASHES = (0, (3, 2))


@dataclass(frozen=True)
class Scale:
    """Where the levels of the x axis stand, what their ticks say, what the axis is called, and whether it is logarithmic."""

    places: dict[str, float]
    ticks: list[str]
    name: str
    log: bool


def lines(wanted: Wanted) -> Iterator[Figure]:
    """Figures with up to twelve panels each; colours are the same in all."""
    for page in pages(numbered(wanted.panels(wanted.by, wanted.asked.x))):
        yield _figure(wanted, page)


def scale_of(labels: Sequence[str], axis: str, log: bool) -> Scale:
    """Numbers where they are, if all labels are and their ticks have room; other labels at even distances."""
    name = axis.replace("_", " ")
    prefixes = {label.partition("=")[0] for label in labels}
    if len(prefixes) == 1 and all("=" in label for label in labels):  # such as mu=0.1, mu=1
        name = next(iter(prefixes)).strip()
    ticks = [label.partition("=")[2] if "=" in label and len(prefixes) == 1 else label for label in labels]
    values = [number(tick) for tick in ticks]
    known = [value for value in values if value is not None]
    even = Scale(dict(zip(labels, map(float, range(len(labels))), strict=True)), ticks, plain(name), False)
    if len(known) < len(values) or len(set(known)) < len(known):
        return even
    log = log and min(known) > 0
    where = sorted(math.log(value) if log else value for value in known)
    gaps = [b - a for a, b in itertools.pairwise(where)]
    if gaps and min(gaps) < _CLOSE * (where[-1] - where[0]):
        return even
    return Scale(dict(zip(labels, known, strict=True)), ticks, plain(name), log)


def _figure(wanted: Wanted, page: Sequence[Panel]) -> Figure:
    from matplotlib.lines import Line2D

    assert wanted.asked.x is not None
    entries = [entry for panel in page for entry in panel.entries]
    shown, ours = wanted.levels(entries), {wanted.level(entry) for entry in entries if entry.by_seed}
    columns = usual_columns(len(page))
    printed = any(not math.isnan(entry.printed) for entry in entries)
    labels = [*(wanted.named(label) for label in shown), *([PUBLISHED] if printed else [])]
    figure, places = grid(len(page), columns, 2.4 if columns == 1 else 1.9, legend_height(labels, columns))
    names = []
    for axes, panel in zip(places, page, strict=True):
        scale = scale_of(wanted.along(panel.entries, wanted.asked.x), wanted.asked.x, wanted.asked.log)
        names.append(_capital(scale.name))
        for label in shown:
            _draw(axes, wanted, [entry for entry in panel.entries if wanted.level(entry) == label], scale)
        _frame(axes, scale, NARROW - 0.6 if columns == 1 else WIDTH / columns - 0.5)
    caption(places, [panel.title for panel in page], columns, names[-1], wanted.heading)
    keys = [
        Line2D([], [], label=name, **(_look if k in ours else _printed_look)(wanted, k))
        for k, name in zip(shown, labels, strict=False)
    ]
    if printed:
        open_circle: Any = {"color": "#555555", "marker": "o", "markersize": 4.5, "linewidth": 0.8}
        keys.append(Line2D([], [], markerfacecolor="white", linestyle=_DASHES, label=PUBLISHED, **open_circle))
    legend(figure, keys)
    return figure


def _draw(axes: Axes, wanted: Wanted, entries: Sequence[Entry], scale: Scale) -> None:
    """One level's line, ours and the printed one."""
    axis = wanted.asked.x or ""
    mine = sorted(entries, key=lambda entry: scale.places[entry.at[axis]])
    ours = [entry for entry in mine if entry.by_seed]
    if ours:
        level = wanted.level(ours[0])
        axes.errorbar(
            [scale.places[entry.at[axis]] for entry in ours],
            [entry.mean for entry in ours],
            [entry.std for entry in ours],
            elinewidth=0.9,
            zorder=4 if level == wanted.own else 3,
            label=wanted.named(level) or "_only",
            **_look(wanted, level),
        )
    printed = [entry for entry in mine if not math.isnan(entry.printed)]
    if printed:
        axes.plot(
            [scale.places[entry.at[axis]] for entry in printed],
            [entry.printed for entry in printed],
            zorder=2.5,
            label=f"_{PUBLISHED}",
            **_printed_look(wanted, wanted.level(printed[0])),
        )


def _look(wanted: Wanted, label: str) -> dict[str, Any]:
    return {
        "color": wanted.colour(label),
        "linestyle": wanted.dash(label),
        "linewidth": 2.0 if label == wanted.own else 1.4,
        "marker": wanted.marker(label),
        "markersize": 4.5,
    }


def _printed_look(wanted: Wanted, label: str) -> dict[str, Any]:
    return {**_look(wanted, label), "linestyle": _DASHES, "linewidth": 0.8, "markerfacecolor": "white"}


def _frame(axes: Axes, scale: Scale, wide: float) -> None:
    """Ticks where levels are; aslant where their labels would not fit into so many inches side by side."""
    from matplotlib.ticker import MaxNLocator

    if scale.log:
        axes.set_xscale("log")
        axes.xaxis.minorticks_off()
    axes.set_xticks(list(scale.places.values()), [plain(tick) for tick in scale.ticks], fontsize=SMALL)
    if len(scale.ticks) * (1 + max(map(len, scale.ticks))) * 0.06 > wide:
        axes.tick_params(axis="x", labelrotation=35)
        for tick in axes.get_xticklabels():
            tick.set_horizontalalignment("right")
            tick.set_rotation_mode("anchor")
    axes.margins(x=0.06)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=(1, 2, 5, 10)))
    axes.grid(axis="y")


def _capital(name: str) -> str:
    """An axis' name begins with a capital, a symbol's stays as it is."""
    return name[:1].upper() + name[1:] if len(name) > 2 and name.isalpha() else name
