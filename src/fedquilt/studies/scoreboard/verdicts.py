"""How many of the printed numbers of each table were exceeded, reached, missed, and not run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fedquilt.studies.catalogue_files import study_names
from fedquilt.studies.published import read_published
from fedquilt.studies.scoreboard.results import StudyResult
from fedquilt.studies.spec import find_study
from fedquilt.studies.summary import EXCEEDED, MISSED, REACHED


@dataclass(frozen=True)
class Verdicts:
    """The printed numbers of one table, or of several.

    Attributes:
        name: of the study. title: of the study, or what is summed up.
        exceeded, reached, missed: numbers of ours that are at least as good, at most 1.0 below, or further below.
        not_run: printed numbers that we have none for.
    """

    name: str
    title: str
    exceeded: int = 0
    reached: int = 0
    missed: int = 0
    not_run: int = 0

    @property
    def label(self) -> str:
        """What it is in a paper, such as `FED-PUB, Table 1`."""
        further = " ".join(self.name.split("-")[3:])
        return self.title.partition(":")[0] + (f" ({further})" if further else "")

    @property
    def printed(self) -> int:
        """All printed numbers."""
        return self.exceeded + self.reached + self.missed + self.not_run

    @property
    def run(self) -> int:
        """Those that we have a number for."""
        return self.printed - self.not_run

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Exceeded, reached, missed, not run."""
        return self.exceeded, self.reached, self.missed, self.not_run

    def plus(self, other: Verdicts) -> Verdicts:
        """The sums of both, under the name of this one."""
        return Verdicts(self.name, self.title, *(a + b for a, b in zip(self.counts, other.counts, strict=True)))


def all_verdicts(results: Mapping[str, StudyResult]) -> list[Verdicts]:
    """A line for each study of the catalogue with printed numbers, whether it was run or not.

    A study of ours that has the printed numbers of another one again, on another split, is left out.
    """
    return list(_each(results))


def _each(results: Mapping[str, StudyResult]) -> Iterator[Verdicts]:
    seen: set[tuple[str, frozenset[str], float]] = set()
    for name in study_names():
        study = find_study(name)
        known = [p for p in read_published(study, name) if not p.is_average and p.mean == p.mean]
        table = "-".join(name.split("-")[:3])
        numbers = {(table, frozenset(p.at.values()), p.mean) for p in known}
        printed = 0 if numbers <= seen else len(known)
        seen |= numbers
        if not printed:
            continue
        result = results.get(name)
        if result is None:
            yield Verdicts(name, study.title, not_run=printed)
            continue
        found = [entry.verdict for entry in result.summary.entries]
        exceeded, reached, missed = (found.count(verdict) for verdict in (EXCEEDED, REACHED, MISSED))
        yield Verdicts(name, study.title, exceeded, reached, missed, printed - exceeded - reached - missed)
