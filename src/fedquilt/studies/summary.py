"""What came of a study: our numbers beside the published ones, ranks, and what can be told apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fedquilt.runs.folder import SeedFolder
from fedquilt.studies.cells import Cell, Missing
from fedquilt.studies.measures import measure_at
from fedquilt.studies.published import Published
from fedquilt.studies.selection import chosen
from fedquilt.studies.selection import place as place_of
from fedquilt.studies.spec import Coordinates, Settings, Study
from fedquilt.studies.store import CellStore, StoredCell

EXCEEDED, REACHED, MISSED = "exceeded", "reached", "missed"
# By row and column.
Ranks = dict[tuple[tuple[str, ...], tuple[str, ...]], float]
WITHIN = 1.0  # points by which a published number may be missed and still count as reached
_RELATIVE = 0.01  # of the published number, where it is a fact about a graph rather than a score


@dataclass(frozen=True)
class Entry:
    """One value at one place of the table.

    Attributes:
        at: where it stands. value: what it is.
        by_seed: our value of each seed that is done, for the settings that were chosen.
        settings: the settings that validation chose, where there was a choice; `choices` how many there were.
        published: what the paper prints there, if anything.
        missing: why there is nothing of ours.
        kept: the cells it comes from, by seed.
        planned: how many seeds there are to be.
        better: whether higher or lower is better, or neither.
    """

    at: Coordinates
    value: str
    by_seed: dict[int, float] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    choices: int = 1
    published: Published | None = None
    missing: str = ""
    kept: dict[int, StoredCell] = field(default_factory=dict)
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
    def printed(self) -> float:
        """The published mean; NaN where there is none."""
        return math.nan if self.published is None else self.published.mean

    @property
    def difference(self) -> float:
        """Ours minus published."""
        return self.mean - self.printed

    @property
    def verdict(self) -> str:
        """exceeded (at least as good), reached (within 1.0), missed; nothing where one of the two numbers is not there.

        A fact about a graph is reached within one percent, else missed.
        """
        if math.isnan(self.difference):
            return ""
        if self.better == "neither":
            return REACHED if abs(self.difference) <= _RELATIVE * abs(self.printed) + 1e-9 else MISSED
        ahead = self.difference if self.better == "higher" else -self.difference
        return EXCEEDED if ahead >= 0 else REACHED if ahead >= -WITHIN else MISSED


@dataclass(frozen=True)
class Summary:
    """A study and all its entries, in the order of its places and values.

    Attributes:
        study: which. entries: a value at a place each.
        averages: what the paper prints as averages.
        failed: by cell, why it failed. missing: places that cannot be run.
        codes: how many of the cells each version of the code computed; devices and versions likewise.
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
        """Which row a place is in."""
        return tuple(at[axis] for axis in self.study.rows)

    def column(self, at: Coordinates) -> tuple[str, ...]:
        """Which column a place is in; places in other tables are in other columns."""
        return tuple(at[axis] for axis in (*self.study.tables, *self.study.columns))

    def ranks(self, value: str) -> Ranks:
        """By row and column, the rank of our mean in its column, 1 the best; equals share the mean of their ranks."""
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
        """By row, its mean rank over the columns where every row that has any has a rank."""
        ranks = self.ranks(value)
        rows = list(dict.fromkeys(row for row, _ in ranks))
        columns = list(dict.fromkeys(column for _, column in ranks))
        whole = [column for column in columns if all((row, column) in ranks for row in rows)]
        if not whole or len(rows) < 2:
            return {}
        return {row: statistics.fmean(ranks[row, column] for column in whole) for row in rows}

    def verdicts(self, value: str) -> dict[str, int]:
        """How many published cells were exceeded, reached and missed, and how many have nothing of ours."""
        entries = [entry for entry in self.of(value) if not math.isnan(entry.printed)]
        counts = {verdict: sum(e.verdict == verdict for e in entries) for verdict in (EXCEEDED, REACHED, MISSED)}
        return counts | {"not run": sum(not entry.verdict for entry in entries)}

    @property
    def seeds(self) -> int:
        """How many seeds there are to be."""
        return max((entry.planned for entry in self.entries), default=0)

    @property
    def done(self) -> tuple[int, int]:
        """Cells that count here and are done, and cells that should be."""
        first = self.of(next(iter(self.study.values)))
        return sum(len(entry.kept) for entry in first), sum(entry.planned for entry in first if not entry.missing)


def summarise(
    study: Study,
    cells: Sequence[Cell],
    missing: Sequence[Missing],
    published: Sequence[Published],
    keeping: CellStore,
) -> Summary:
    """Gather what is kept of a study's cells; of several candidates the one that validation chose counts."""
    found, failures = keeping.by_identity(), keeping.failures()
    printed = {(tuple(p.at.values()), p.value): p for p in published if not p.is_average}
    why = {tuple(one.at.values()): one.why for one in missing}
    at_place: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        at_place.setdefault(place_of(cell), []).append(cell)
    choice = chosen(study, cells, found)
    entries: list[Entry] = []
    used: list[StoredCell] = []
    for at in study.places():
        place = tuple(at.values())
        here = at_place.get(place, [])
        counts = [cell for cell in here if cell.candidate == choice.get(place)]
        kept = {cell.seed: found[cell.identity] for cell in counts if cell.identity in found}
        used += kept.values()
        for value in study.values:
            entries.append(
                Entry(
                    at=at,
                    value=value,
                    by_seed=dict(_values(value, kept)),
                    settings=counts[0].settings if counts else {},
                    choices=len({cell.candidate for cell in here}),
                    published=printed.get((place, value)),
                    missing=why.get(place, ""),
                    kept=kept,
                    planned=len({cell.seed for cell in here}),
                    better=study.better.get(value, "higher"),
                )
            )
    return Summary(
        study=study,
        entries=entries,
        averages=[p for p in published if p.is_average],
        failed={c.label: failures[c.identity] for c in cells if c.identity in failures and c.identity not in found},
        missing=list(missing),
        codes=_counted(kept.facts["code"] for kept in used),
        machines=_counted(
            f"{kept.facts['device']}, PyTorch {kept.facts['versions']['torch']}, fedquilt {kept.facts['versions']['fedquilt']}"
            for kept in used
        ),
    )


def _values(value: str, kept: dict[int, StoredCell]) -> Iterator[tuple[int, float]]:
    for seed, one in sorted(kept.items()):
        found = one.measures.get(value)
        if found is None and "@" in value:
            found = measure_at(value, SeedFolder(one.folder / f"seed-{seed}").records())
        if found is not None:
            yield seed, found


def _counted(names: Iterator[str]) -> dict[str, int]:
    out: dict[str, int] = {}
    for name in names:
        out[name] = out.get(name, 0) + 1
    return out
