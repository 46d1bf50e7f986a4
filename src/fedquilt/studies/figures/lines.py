"""Line charts: a value along an axis, our numbers with whiskers, published ones with open markers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedquilt.studies.figures.layout import (
    NARROW,
    SMALL,
    WIDTH,
    caption,
    column_count,
    legend,
    legend_height,
    new_panels,
    number,
    plain,
    split_pages,
)
from fedquilt.studies.figures.request import FigureRequest, Panel, panels_with_numbers
from fedquilt.studies.summary import Entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CLOSE = 0.05  # ticks whose distance is a smaller share of the axis would touch
PUBLISHED = "published"
_DASHES = (0, (3, 2))
_MANY = 6  # with more lines panels are higher, and points stand side by side, so that whiskers do not cover each other
_STEP = 0.012  # the distance of two points that stand side by side, as a share of the axis
_GROUP = 0.6  # how far the points of a level reach at most, as a share of the distance to the next level


@dataclass(frozen=True)
class Scale:
    """The x axis: the position of each level, the text of its tick, the name of the axis, and whether it is logarithmic."""

    positions: dict[str, float]
    ticks: list[str]
    name: str
    log: bool

    def offsets(self, count: int) -> list[float]:
        """How far right of its level each of `count` points side by side stands; on a logarithmic axis in logarithms."""
        where = sorted(math.log(x) if self.log else x for x in self.positions.values())
        nearest = min((b - a for a, b in itertools.pairwise(where)), default=1.0)
        step = min(_STEP * (where[-1] - where[0] or 1.0), _GROUP * nearest / count)
        return [step * (place - (count - 1) / 2) for place in range(count)]

    def beside(self, label: str, offset: float) -> float:
        """The position of a level, moved by one of `offsets`."""
        return self.positions[label] * math.exp(offset) if self.log else self.positions[label] + offset


def lines(request: FigureRequest) -> Iterator[Figure]:
    """Draw the figures, with up to twelve panels each and the same colours in all."""
    for page in split_pages(panels_with_numbers(request.panels(request.by, request.spec.x))):
        yield _figure(request, page)


def scale_of(labels: Sequence[str], axis: str, log: bool) -> Scale:
    """The x axis of some labels: numbers at their values where ticks do not touch, other labels at equal distances."""
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


def _figure(request: FigureRequest, page: Sequence[Panel]) -> Figure:
    from matplotlib.lines import Line2D

    assert request.spec.x is not None
    entries = [entry for panel in page for entry in panel.entries]
    shown, ours = request.levels(entries), {request.level(entry) for entry in entries if entry.by_seed}
    columns = column_count(len(page))
    printed = any(not math.isnan(entry.printed) for entry in entries)
    labels = [*(request.legend_label(label) for label in shown), *([PUBLISHED] if printed else [])]
    many = len(shown) > _MANY
    height = (2.4 if columns == 1 else 1.9) + (1.0 if many else 0.0)
    figure, places = new_panels(len(page), columns, height, legend_height(labels, columns))
    names = []
    for axes, panel in zip(places, page, strict=True):
        scale = scale_of(request.levels_along(request.spec.x, panel.entries), request.spec.x, request.spec.log)
        names.append(_capital(scale.name))
        offsets = scale.offsets(len(shown)) if many else [0.0] * len(shown)
        for label, offset in zip(shown, offsets, strict=True):
            _draw(axes, request, [entry for entry in panel.entries if request.level(entry) == label], scale, offset)
        _frame(axes, scale, NARROW - 0.6 if columns == 1 else WIDTH / columns - 0.5)
    caption(places, [panel.title for panel in page], columns, names[-1], request.heading)
    keys = [
        Line2D([], [], label=name, **(_style if k in ours else _published_style)(request, k))
        for k, name in zip(shown, labels, strict=False)
    ]
    if printed:
        open_circle: Any = {"color": "#555555", "marker": "o", "markersize": 4.5, "linewidth": 0.8}
        keys.append(Line2D([], [], markerfacecolor="white", linestyle=_DASHES, label=PUBLISHED, **open_circle))
    legend(figure, keys)
    return figure


def _draw(axes: Axes, request: FigureRequest, entries: Sequence[Entry], scale: Scale, offset: float) -> None:
    """Draw one level's line, moved by the offset, and the line of its published numbers."""
    axis = request.spec.x or ""
    mine = sorted(entries, key=lambda entry: scale.positions[entry.at[axis]])
    ours = [entry for entry in mine if entry.by_seed]
    if ours:
        level = request.level(ours[0])
        axes.errorbar(
            [scale.beside(entry.at[axis], offset) for entry in ours],
            [entry.mean for entry in ours],
            [entry.std for entry in ours],
            elinewidth=0.9,
            zorder=4 if level == request.own_method else 3,
            label=request.legend_label(level) or "_only",
            **_style(request, level),
        )
    printed = [entry for entry in mine if not math.isnan(entry.printed)]
    if printed:
        axes.plot(
            [scale.beside(entry.at[axis], offset) for entry in printed],
            [entry.printed for entry in printed],
            zorder=2.5,
            label=f"_{PUBLISHED}",
            **_published_style(request, request.level(printed[0])),
        )


def _style(request: FigureRequest, label: str) -> dict[str, Any]:
    return {
        "color": request.colour(label),
        "linestyle": request.dash(label),
        "linewidth": 2.0 if label == request.own_method else 1.4,
        "marker": request.marker(label),
        "markersize": 4.5,
    }


def _published_style(request: FigureRequest, label: str) -> dict[str, Any]:
    return {**_style(request, label), "linestyle": _DASHES, "linewidth": 0.8, "markerfacecolor": "white"}


def _frame(axes: Axes, scale: Scale, wide: float) -> None:
    """Set a tick for each level, rotated where the labels do not fit into `wide` inches side by side."""
    from matplotlib.ticker import MaxNLocator

    if scale.log:
        axes.set_xscale("log")
        axes.xaxis.minorticks_off()
    axes.set_xticks(list(scale.positions.values()), [plain(tick) for tick in scale.ticks], fontsize=SMALL)
    if len(scale.ticks) * (1 + max(map(len, scale.ticks))) * 0.06 > wide:
        axes.tick_params(axis="x", labelrotation=35)
        for tick in axes.get_xticklabels():
            tick.set_horizontalalignment("right")
            tick.set_rotation_mode("anchor")
    axes.margins(x=0.06)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=(1, 2, 5, 10)))
    axes.grid(axis="y")


def _capital(name: str) -> str:
    """A name with a capital letter; a symbol of one or two letters stays as it is."""
    return name[:1].upper() + name[1:] if len(name) > 2 and name.isalpha() else name
