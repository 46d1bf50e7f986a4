"""What all figures of a study share: which entries are drawn, a panel for each place, who looks how, one legend."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from fedquilt.methods.base import methods
from fedquilt.reports import style
from fedquilt.studies.spec import Coordinates
from fedquilt.studies.spec import Figure as Asked
from fedquilt.studies.summary import Entry, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 12
WIDTH, NARROW = 7.0, 3.5  # inches: both columns of a page, and one
TEXT, SMALL = 8.0, 7.0  # points
# Their numbers and the number of colours have no common divisor, so that colour and marker or hatch repeat late together.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "||||", "oooo", "----")
OPEN: Any = {"marker": "D", "markerfacecolor": "white", "linestyle": "none"}  # a published number
Item = TypeVar("Item")


@dataclass(frozen=True)
class Panel:
    """One pair of axes: what it is called, and what is drawn there."""

    title: str
    entries: list[Entry]


@dataclass(frozen=True)
class Wanted:
    """A figure that a study asks for.

    Attributes:
        summary: the study and what is kept of it. asked: the figure, as its file has it.
        data: the folder with graphs. aside: gets a sentence about what is not as it was asked for.
    """

    summary: Summary
    asked: Asked
    data: str | None
    aside: Callable[[str], None]

    @property
    def heading(self) -> str:
        """What the drawn value is called."""
        return plain(self.summary.study.values[self.asked.value])

    @property
    def by(self) -> str | None:
        """The axis with a line or colour for each level, where the study has it."""
        return self.asked.by if self.asked.by in self.summary.study.axes else None

    @cached_property
    def entries(self) -> list[Entry]:
        """The entries that it is about, of those of which something is done or printed."""
        where = self.asked.where.items()
        mine = [e for e in self.summary.of(self.asked.value) if all(e.at.get(a) in labels for a, labels in where)]
        return [entry for entry in mine if entry.kept or not math.isnan(entry.printed)]

    @cached_property
    def positions(self) -> dict[str, int]:
        """By level of `by` that is drawn, its place in the palette: the same in all panels; ours come first, the floor last."""
        ours = {self.level(entry) for entry in self.entries if entry.kept}
        order = self.levels(self.entries)
        ranked = sorted(order, key=lambda label: (label in self.floor, label not in ours, order.index(label)))
        return {label: position for position, label in enumerate(ranked)}

    @cached_property
    def floor(self) -> set[str]:
        """The levels of `by` that learn nothing; they are grey."""
        levels = self.summary.study.axes[self.by] if self.by else []
        known = methods()
        named = [(level.label, str(level.options.get("method"))) for level in levels]
        return {label for label, method in named if method in known and known[method].single_round}

    @property
    def own(self) -> str | None:
        """The level of `by` that is the paper's own method, which is drawn with more weight."""
        study = self.summary.study
        named = (level.label for level in study.axes[self.by] if level.called("", study.paper)) if self.by else iter(())
        return next(named, None)

    def level(self, entry: Entry) -> str:
        """Which level of `by` an entry is of."""
        return entry.at[self.by] if self.by else ""

    def levels(self, entries: Sequence[Entry]) -> list[str]:
        """The levels of `by` that some entries are of, in the study's order."""
        there = {self.level(entry) for entry in entries}
        return [label for label in self._order(self.by) if label in there] if self.by else [""]

    def along(self, entries: Sequence[Entry], axis: str) -> list[str]:
        """The levels of any axis that some entries are of, in the study's order."""
        there = {entry.at[axis] for entry in entries}
        return [label for label in self._order(axis) if label in there]

    def _order(self, axis: str) -> list[str]:
        return [level.label for level in self.summary.study.axes[axis]]

    def panels(self, *inside: str | None) -> list[Panel]:
        """A panel for each place of the axes that are not `inside` panels, where something of ours is done."""
        outside = [axis for axis in self.summary.study.axes if axis not in inside]
        places: dict[tuple[str, ...], list[Entry]] = {}
        for entry in self.entries:
            places.setdefault(tuple(entry.at[axis] for axis in outside), []).append(entry)
        done = [entries for entries in places.values() if any(entry.kept for entry in entries)]
        return [Panel(self.title(entries[0].at, outside), entries) for entries in done]

    def title(self, at: Coordinates, axes: Sequence[str]) -> str:
        """A place in words, without what the figure says of all places (`where`)."""
        fixed = {axis for axis, labels in self.asked.where.items() if len(labels) == 1}
        return ", ".join(heading(axis, at[axis]) for axis in axes if axis not in fixed)

    def colour(self, label: str) -> str:
        """The colour of a level of `by`."""
        return style.GREY if label in self.floor else style.colour(self.positions[label])

    def dash(self, label: str) -> Any:
        """The dash of a level of `by`: another one where the colours begin again."""
        return style.dash(self.positions[label])

    def marker(self, label: str) -> str:
        """The marker of a level of `by`."""
        return MARKERS[self.positions[label] % len(MARKERS)]

    def hatch(self, label: str) -> str:
        """The hatch of a level of `by`."""
        return HATCHES[self.positions[label] % len(HATCHES)]

    def named(self, label: str) -> str:
        """A level of `by` as the legend has it."""
        return heading(self.by, label) if self.by else ""


def numbered(panels: Sequence[Panel]) -> list[Panel]:
    """Panels with the entries that have a number, ours or printed; without those that have none of ours."""
    some = [Panel(p.title, [e for e in p.entries if e.by_seed or not math.isnan(e.printed)]) for p in panels]
    return [panel for panel in some if any(entry.by_seed for entry in panel.entries)]


def plain(text: str) -> str:
    """Text as it is: no formula between dollars, and no label that a legend would leave out."""
    text = " ".join(text.split()).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def heading(axis: str, label: str) -> str:
    """A level in words: a bare number says of what."""
    if axis == "clients" and label.isdigit():
        return f"{label} clients"
    name = axis.replace("_", " ")
    return plain(label if number(label) is None else f"{name} = {label}")


def number(label: str) -> float | None:
    """A label as a number, where it is one."""
    try:
        value = float(label)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def pages(items: Sequence[Item], most: int = MOST_PANELS) -> Iterator[Sequence[Item]]:
    """As few pages as possible, about as full as each other."""
    if items:
        size = math.ceil(len(items) / math.ceil(len(items) / most))
        yield from (items[first : first + size] for first in range(0, len(items), size))


def usual_columns(count: int) -> int:
    """How many panels stand side by side."""
    return {1: 1, 2: 2, 4: 2}.get(count, 3)


def grid(count: int, columns: int, height: float, below: float = 0.0) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels in so many columns, each `height` inches high, and room below for a legend."""
    rows = math.ceil(count / columns)
    figure = style.new_figure(NARROW if columns == 1 else WIDTH, rows * height + below)
    places = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in places[count:]:
        axes.set_axis_off()
    for axes in places[:count]:
        axes.tick_params(labelsize=SMALL)
    return figure, places[:count]


def caption(all_axes: Sequence[Axes], titles: Sequence[str], columns: int, x: str, y: str) -> None:
    """Title each panel; name the x axis where no panel is below, the y axis where none is to the left."""
    wide = NARROW if columns == 1 else WIDTH / columns
    for place, (axes, title) in enumerate(zip(all_axes, titles, strict=True)):
        axes.set_title(wrapped(title, wide), fontsize=TEXT)
        if place + columns >= len(all_axes):
            axes.set_xlabel(x, fontsize=TEXT)
        if place % columns == 0:
            axes.set_ylabel(wrapped(y, 1.6), fontsize=TEXT)


def wrapped(text: str, inches: float) -> str:
    """Text in lines that are about as long."""
    return textwrap.fill(text, max(12, int(inches / 0.066)))


def legend(figure: Figure, keys: Sequence[Any]) -> None:
    """One legend below all panels, in columns that fit."""
    keys = [key for key in keys if key.get_label()]
    if not keys:
        return
    longest = max(len(str(key.get_label())) for key in keys)
    fit = max(1, int((figure.get_figwidth() - 0.2) / (0.45 + 0.062 * longest)))
    figure.legend(
        handles=list(keys),
        loc="outside lower center",
        ncols=math.ceil(len(keys) / math.ceil(len(keys) / fit)),
        fontsize=SMALL + 0.5,
        handlelength=2.2,
        columnspacing=1.2,
        labelspacing=0.35,
    )


def legend_height(labels: Sequence[str], columns: int) -> float:
    """Inches that `legend` takes."""
    if not any(labels):
        return 0.1
    wide = (NARROW if columns == 1 else WIDTH) - 0.2
    fit = max(1, int(wide / (0.45 + 0.062 * max(map(len, labels)))))
    return 0.15 + 0.15 * math.ceil(len(labels) / fit)
