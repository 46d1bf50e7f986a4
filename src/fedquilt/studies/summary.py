"""The summary of a study: our numbers beside the published ones, with verdicts and ranks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fedquilt.studies.cells import Missing
from fedquilt.studies.published import Published
from fedquilt.studies.spec import Coordinates, Settings, Study
from fedquilt.studies.store import StoredCell

EXCEEDED, REACHED, MISSED = "exceeded", "reached", "missed"
# By row and column, the rank.
Ranks = dict[tuple[tuple[str, ...], tuple[str, ...]], float]
WITHIN = 1.0  # a published number is reached where ours is at most so many points below it
COSTS = ("seconds", "upload_mb", "download_mb")
"""Measures of a run that are its cost: seconds a round, 10^6 bytes a client and round."""
_RELATIVE = 0.01  # tolerance for statistics of graphs, as a share of the published number


@dataclass(frozen=True)
class Entry:
    """One value at one place of the table.

    Attributes:
        at: the place. value: the name of the value.
        by_seed: our numbers with the selected settings, by seed; seeds that are not done are left out.
        settings: the settings that validation selected. choices: among how many.
        published: the number that the paper prints there, if any.
        missing: why we have no number.
        cells: the finished cells behind our numbers, by seed.
        planned: the number of seeds when all are done.
        better: whether higher or lower is better, or neither.
    """

    at: Coordinates
    value: str
    by_seed: dict[int, float] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    choices: int = 1
    published: Published | None = None
    missing: str = ""
    cells: dict[int, StoredCell] = field(default_factory=dict)
    planned: int = 0
    better: str = "higher"

    @cached_property
    def mean(self) -> float:
        """Our mean over seeds; NaN where there is none."""
        return statistics.fmean(self.by_seed.values()) if self.by_seed else math.nan

    @cached_property
    def std(self) -> float:
        """The population's standard deviation over seeds; NaN for fewer than two."""
        return statistics.pstdev(self.by_seed.values()) if len(self.by_seed) > 1 else math.nan

    @property
    def stale(self) -> bool:
        """Whether another version of the computation than the installed one finished one of its cells."""
        return any(cell.stale for cell in self.cells.values())

    @property
    def printed(self) -> float:
        """The published mean; NaN where there is none."""
        return math.nan if self.published is None else self.published.mean

    @property
    def difference(self) -> float:
        """Ours minus published."""
        return self.mean - self.printed

    @property
    def verdict(self) -> str:
        """exceeded (at least as good), reached (within 1.0) or missed; empty where one of the two numbers is missing.

        A statistic of a graph is reached within one percent, else missed.
        """
        if math.isnan(self.difference):
            return ""
        if self.better == "neither":
            return REACHED if abs(self.difference) <= _RELATIVE * abs(self.printed) + 1e-9 else MISSED
        ahead = self.difference if self.better == "higher" else -self.difference
        return EXCEEDED if ahead >= 0 else REACHED if ahead >= -WITHIN else MISSED


def mean_costs(cells: Mapping[int, StoredCell]) -> dict[str, float]:
    """The mean over seeds of each of `COSTS` that some of these cells measured."""
    known = {name: [v for c in cells.values() if (v := c.measures.get(name)) is not None] for name in COSTS}
    return {name: statistics.fmean(values) for name, values in known.items() if values}


@dataclass(frozen=True)
class Summary:
    """A study and all its entries, in the order of its places and values.

    Attributes:
        study: the study. entries: one for each value at each place.
        averages: the averages that the paper prints.
        failed: by label of a cell, why it failed. missing: places that cannot be run.
        codes: by version of the computation, how many of the cells it computed.
        machines: by device and versions of packages, how many of the cells they computed.
    """

    study: Study
    entries: list[Entry]
    averages: list[Published]
    failed: dict[str, str]
    missing: list[Missing]
    codes: dict[str, int]
    machines: dict[str, int]

    def of(self, value: str) -> list[Entry]:
        """The entries of one value."""
        return [entry for entry in self.entries if entry.value == value]

    def row(self, at: Coordinates) -> tuple[str, ...]:
        """The row of a place."""
        return tuple(at[axis] for axis in self.study.rows)

    def column(self, at: Coordinates) -> tuple[str, ...]:
        """The column of a place; the axis labels of its table are part of it."""
        return tuple(at[axis] for axis in (*self.study.tables, *self.study.columns))

    def ranks(self, value: str) -> Ranks:
        """By row and column, the rank of our mean in its column; 1 is the best, and equal means share their mean rank."""
        columns: dict[tuple[str, ...], list[Entry]] = {}
        for entry in self.of(value):
            if not math.isnan(entry.mean) and entry.better != "neither":
                columns.setdefault(self.column(entry.at), []).append(entry)
        out: Ranks = {}
        for column, entries in columns.items():
            for entry in entries:
                sign = 1 if entry.better == "higher" else -1
                ahead = sum(sign * (other.mean - entry.mean) > 0 for other in entries)
                equal = sum(other.mean == entry.mean for other in entries)
                out[self.row(entry.at), column] = ahead + (equal + 1) / 2
        return out

    def mean_ranks(self, value: str) -> dict[tuple[str, ...], float]:
        """By row, its mean rank over the columns in which all ranked rows have one; empty for fewer than two rows."""
        ranks = self.ranks(value)
        rows = list(dict.fromkeys(row for row, _ in ranks))
        columns = list(dict.fromkeys(column for _, column in ranks))
        whole = [column for column in columns if all((row, column) in ranks for row in rows)]
        if not whole or len(rows) < 2:
            return {}
        return {row: statistics.fmean(ranks[row, column] for column in whole) for row in rows}

    def verdicts(self, value: str) -> dict[str, int]:
        """How many published numbers were exceeded, reached and missed, and how many have no number of ours."""
        entries = [entry for entry in self.of(value) if not math.isnan(entry.printed)]
        counts = {verdict: sum(e.verdict == verdict for e in entries) for verdict in (EXCEEDED, REACHED, MISSED)}
        return counts | {"not run": sum(not entry.verdict for entry in entries)}

    @cached_property
    def has_published(self) -> bool:
        """Whether the paper prints a number at one of the places."""
        return any(not math.isnan(entry.printed) for entry in self.entries)

    @property
    def seeds(self) -> int:
        """The number of seeds when all are done."""
        return max((entry.planned for entry in self.entries), default=0)

    @property
    def stale(self) -> int:
        """How many cells of the selected settings another version of the computation than the installed one finished."""
        first = self.of(next(iter(self.study.values)))
        return len({cell.folder for entry in first for cell in entry.cells.values() if cell.stale})

    @property
    def done(self) -> tuple[int, int]:
        """How many cells of the selected settings are done, and how many there are."""
        first = self.of(next(iter(self.study.values)))
        return sum(len(entry.cells) for entry in first), sum(entry.planned for entry in first if not entry.missing)
