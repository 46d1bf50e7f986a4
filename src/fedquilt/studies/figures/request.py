"""A figure that a study asks for: the entries it shows, their panels, and the look of each level."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedquilt.methods.base import methods
from fedquilt.reports import style
from fedquilt.studies.figures.layout import level_name, plain
from fedquilt.studies.spec import Coordinates, FigureSpec
from fedquilt.studies.summary import Entry, Summary

# Their numbers and the number of colours have no common divisor, so that a pair of colour and marker or hatch repeats late.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "||||", "oooo", "----")


@dataclass(frozen=True)
class Panel:
    """One pair of axes: its title and the entries that are drawn there."""

    title: str
    entries: list[Entry]


@dataclass(frozen=True)
class FigureRequest:
    """A figure to draw from a summary.

    Attributes:
        summary: the study and its entries. spec: the figure as the study's file describes it.
        data: the folder with graphs. warn: called with a sentence about anything that cannot be drawn as asked.
    """

    summary: Summary
    spec: FigureSpec
    data: str | None
    warn: Callable[[str], None]

    @property
    def heading(self) -> str:
        """The heading of the drawn value."""
        return plain(self.summary.study.values[self.spec.value])

    @property
    def by(self) -> str | None:
        """The axis with a line or colour for each level; None where the study does not have it."""
        return self.spec.by if self.spec.by in self.summary.study.axes else None

    @cached_property
    def entries(self) -> list[Entry]:
        """The entries of the figure that have a finished cell or a published number."""
        where = self.spec.where.items()
        mine = [e for e in self.summary.of(self.spec.value) if all(e.at.get(a) in labels for a, labels in where)]
        return [entry for entry in mine if entry.cells or not math.isnan(entry.printed)]

    @cached_property
    def positions(self) -> dict[str, int]:
        """By drawn level of `by`, its position in the palette, the same in all panels.

        Levels with finished cells come first, baselines last.
        """
        done = {self.level(entry) for entry in self.entries if entry.cells}
        order = self.levels(self.entries)
        ranked = sorted(order, key=lambda label: (label in self.baselines, label not in done, order.index(label)))
        return {label: position for position, label in enumerate(ranked)}

    @cached_property
    def baselines(self) -> set[str]:
        """The levels of `by` whose method learns nothing; they are drawn in grey."""
        levels = self.summary.study.axes[self.by] if self.by else []
        known = methods()
        named = [(level.label, str(level.options.get("method"))) for level in levels]
        return {label for label, method in named if method in known and known[method].single_round}

    @property
    def own_method(self) -> str | None:
        """The level of `by` that is the paper's own method; it is drawn with thicker lines."""
        study = self.summary.study
        named = (level.label for level in study.axes[self.by] if level.called("", study.paper)) if self.by else iter(())
        return next(named, None)

    def level(self, entry: Entry) -> str:
        """The level of `by` of an entry."""
        return entry.at[self.by] if self.by else ""

    def levels(self, entries: Sequence[Entry]) -> list[str]:
        """The levels of `by` of some entries, in the order of the study."""
        return self.levels_along(self.by, entries) if self.by else [""]

    def levels_along(self, axis: str, entries: Sequence[Entry]) -> list[str]:
        """The levels of any axis of some entries, in the order of the study."""
        found = {entry.at[axis] for entry in entries}
        return [level.label for level in self.summary.study.axes[axis] if level.label in found]

    def panels(self, *inside: str | None) -> list[Panel]:
        """A panel for each place of all axes but those `inside` a panel, where a cell is done."""
        outside = [axis for axis in self.summary.study.axes if axis not in inside]
        places: dict[tuple[str, ...], list[Entry]] = {}
        for entry in self.entries:
            places.setdefault(tuple(entry.at[axis] for axis in outside), []).append(entry)
        done = [entries for entries in places.values() if any(entry.cells for entry in entries)]
        return [Panel(self.title(entries[0].at, outside), entries) for entries in done]

    def title(self, at: Coordinates, axes: Sequence[str]) -> str:
        """A place as a title, without the axes that `where` fixes to one level."""
        fixed = {axis for axis, labels in self.spec.where.items() if len(labels) == 1}
        return ", ".join(level_name(axis, at[axis]) for axis in axes if axis not in fixed)

    def colour(self, label: str) -> str:
        """The colour of a level of `by`."""
        return style.GREY if label in self.baselines else style.colour(self.positions[label])

    def dash(self, label: str) -> Any:
        """The dash of a level of `by`: another one where the colours start again."""
        return style.dash(self.positions[label])

    def marker(self, label: str) -> str:
        """The marker of a level of `by`."""
        return MARKERS[self.positions[label] % len(MARKERS)]

    def hatch(self, label: str) -> str:
        """The hatch of a level of `by`."""
        return HATCHES[self.positions[label] % len(HATCHES)]

    def legend_label(self, label: str) -> str:
        """A level of `by` in the legend; empty where there is no such axis."""
        return level_name(self.by, label) if self.by else ""


def panels_with_numbers(panels: Sequence[Panel]) -> list[Panel]:
    """The panels that have a number of ours, reduced to entries with a number, ours or published."""
    reduced = [Panel(p.title, [e for e in p.entries if e.by_seed or not math.isnan(e.printed)]) for p in panels]
    return [panel for panel in reduced if any(entry.by_seed for entry in panel.entries)]
