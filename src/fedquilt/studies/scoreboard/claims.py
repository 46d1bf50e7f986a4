"""What the papers claim of their methods and mechanisms, and whether it shows.

The mechanisms are those of the papers' own ablations (`catalogue/claims.yaml`). Of a whole method the claim is that it is
better, on average, than the next best row of its paper's table.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fedquilt.reports.paired_test import ALPHA, wilcoxon_p
from fedquilt.runs.read_config import read_config
from fedquilt.studies.catalogue_files import study_names
from fedquilt.studies.published import read_published
from fedquilt.studies.scoreboard.results import Place, StudyResult
from fedquilt.studies.significance import holm
from fedquilt.studies.spec import Coordinates, Study, find_study

VALUE = "test"
Partner = Callable[[Coordinates], Coordinates | None]
"""The place that a place is compared with; None where it is not compared."""
SHOWS, POINTS, NOT, OPPOSITE, OPEN = "shows", "points that way", "does not show", "the opposite shows", "not run"


class Claim(BaseModel):
    """A claim of a paper: places of one of its studies with a mechanism are better than the same places without it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    mechanism: str
    study: str
    having: Coordinates = Field(alias="with")
    lacking: Coordinates = Field(alias="without")


@dataclass(frozen=True)
class Finding:
    """A claim beside what came of it.

    Attributes:
        paper, mechanism, study: whose, what, and in which study.
        printed: the gain that the paper prints, mean over its places; NaN where it prints none.
        ours: our gain, mean over the places that were run. places: how many.
        p: of Wilcoxon's test over pairs of place and seed, corrected by Holm for the number of claims; NaN where too few.
    """

    paper: str
    mechanism: str
    study: str
    printed: float
    ours: float
    places: int
    p: float

    @property
    def verdict(self) -> str:
        """Whether the claim shows."""
        if math.isnan(self.ours):
            return OPEN
        told = not math.isnan(self.p) and self.p < ALPHA
        if self.ours > 0:
            return SHOWS if told else POINTS
        return OPPOSITE if told else NOT


@cache
def read_claims() -> tuple[Claim, ...]:
    """The claims of the catalogue."""
    with resources.as_file(resources.files("fedquilt.studies") / "catalogue" / "claims.yaml") as path:
        return tuple(Claim.model_validate(one) for one in read_config(path)["claims"])


def findings(results: Mapping[str, StudyResult]) -> list[Finding]:
    """All claims: of the whole methods in their main tables, then of their mechanisms, with p corrected for their number."""
    found = [*_whole_methods(results), *(_of_claim(claim, results.get(claim.study)) for claim in read_claims())]
    return [replace(one, p=p) for one, p in zip(found, holm([one.p for one in found]), strict=True)]


def _of_claim(claim: Claim, result: StudyResult | None) -> Finding:
    study = find_study(claim.study) if result is None else result.study
    printed = _printed(study)

    def partner(place: Coordinates) -> Coordinates | None:
        if any(place[axis] != label for axis, label in claim.having.items()):
            return None
        return {**place, **claim.lacking}

    return _finding(claim.paper, claim.mechanism, study, printed, result, partner)


def _whole_methods(results: Mapping[str, StudyResult]) -> Iterator[Finding]:
    """Of each main table, the paper's own method against the best other of the paper's rows: by its numbers, and by ours."""
    for name in study_names():
        study = find_study(name)
        own = [one.label for one in study.axes.get("method", []) if one.options.get("method") == study.paper]
        printed = _printed(study)
        if not study.tuned or study.rows != ["method"] or len(own) != 1 or not printed:
            continue
        result = results.get(name)
        rows = {p.at["method"] for p in read_published(study)}
        run = [] if result is None else [e for e in result.summary.of(VALUE) if e.by_seed and e.at["method"] in rows]
        ours = {tuple(e.at.values()): e.mean for e in run}
        what = f"{study.title.partition(':')[0].partition(', ')[2]}: ahead of the next best row"
        partners = (_rival(study, own[0], numbers) for numbers in (printed, ours))
        yield _finding(own[0], what, study, printed, result, *partners)


def _rival(study: Study, own: str, numbers: Mapping[Place, float]) -> Partner:
    """The partner of a place of the paper's own method: the row that is ahead of it, or least behind, on average."""
    rows: dict[str, dict[Place, float]] = {}
    for at in study.places():
        if (number := numbers.get(tuple(at.values()))) is not None:
            rows.setdefault(at["method"], {})[_column(at)] = number
    mine = rows.pop(own, {})
    behind = {
        label: statistics.fmean(mine[column] - other[column] for column in shared)
        for label, other in rows.items()
        if (shared := mine.keys() & other.keys())
    }
    rival = min(behind, key=lambda label: behind[label], default=None)

    def partner(place: Coordinates) -> Coordinates | None:
        return {**place, "method": rival} if place["method"] == own and rival is not None else None

    return partner


def _column(at: Coordinates) -> Place:
    return tuple(label for axis, label in at.items() if axis != "method")


def _finding(
    paper: str,
    mechanism: str,
    study: Study,
    printed: Mapping[Place, float],
    result: StudyResult | None,
    partner: Partner,
    ours: Partner | None = None,
) -> Finding:
    """The gains of places over their partners, as printed and as run; `ours` are the partners of what was run, if others."""
    said: list[float] = []
    for at in study.places():
        other = partner(at)
        if other is not None:
            pair = printed.get(tuple(at.values())), printed.get(tuple(other.values()))
            said += [pair[0] - pair[1]] if pair[0] is not None and pair[1] is not None else []
    by_place = {} if result is None else {tuple(e.at.values()): e for e in result.summary.of(VALUE) if e.by_seed}
    gains: list[float] = []
    by_seed: list[float] = []
    for entry in by_place.values():
        other = (ours or partner)(entry.at)
        lacking = None if other is None else by_place.get(tuple(other.values()))
        if lacking is not None:
            gains.append(entry.mean - lacking.mean)
            by_seed += [entry.by_seed[s] - lacking.by_seed[s] for s in entry.by_seed if s in lacking.by_seed]
    return Finding(
        paper, mechanism, study.name, _mean(said), _mean(gains), len(gains), wilcoxon_p(np.array(by_seed))
    )  # fmt: skip


def _printed(study: Study) -> dict[Place, float]:
    found = read_published(study)
    return {tuple(p.at.values()): p.mean for p in found if p.value == VALUE and not p.is_average and p.mean == p.mean}


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan
