"""What the papers claim, and whether it shows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedquilt.studies.published import read_published
from fedquilt.studies.scoreboard import claims
from fedquilt.studies.scoreboard.claims import Finding, findings, read_claims
from fedquilt.studies.scoreboard.results import StudyResult
from fedquilt.studies.spec import find_study
from fedquilt.studies.summary import Entry, Summary


def test_every_claim_names_levels_that_its_study_has_and_a_place_on_both_sides() -> None:
    for claim in read_claims():
        study = find_study(claim.study)
        for side in (claim.having, claim.lacking):
            for axis, label in side.items():
                assert label in {level.label for level in study.axes[axis]}, claim
        assert "test" in study.values
        assert claim.having.keys() == claim.lacking.keys()
        places = [place for place in study.places() if place.items() >= claim.having.items()]
        assert places
        assert any({**place, **claim.lacking} in list(study.places()) for place in places)


@pytest.mark.parametrize(
    ("ours", "p", "verdict"),
    [
        (math.nan, math.nan, "not run"),
        (1.0, 0.01, "shows"),
        (1.0, 0.2, "points that way"),
        (1.0, math.nan, "points that way"),
        (-1.0, 0.2, "does not show"),
        (-1.0, 0.01, "the opposite shows"),
    ],
)
def test_verdicts(ours: float, p: float, verdict: str) -> None:
    assert Finding("a", "b", "c", 1.0, ours, 3, p).verdict == verdict


def test_gains_of_an_ablation_and_of_a_main_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "study_names", lambda: ["fedpub-table-8"])
    monkeypatch.setattr(claims, "read_claims", lambda: [c for c in read_claims() if c.study == "fedssa-table-8"])
    rng = np.random.default_rng(0)

    def made(name: str, numbers: dict[str, float], axis: str) -> StudyResult:
        study = find_study(name)
        entries = [
            Entry(at, "test", dict(enumerate(numbers[at[axis]] + rng.normal(0, 0.1, 3))))
            for at in study.places()
            if at[axis] in numbers and at["dataset"] == "Cora"
        ]
        return StudyResult(Summary(study, entries, [], {}, [], {}, {}), {})

    results = {
        "fedssa-table-8": made("fedssa-table-8", {"FedSSA": 80.0, "w/o semantic": 79.0, "w/o both": 81.0}, "variant"),
        "fedpub-table-8": made("fedpub-table-8", {"FED-PUB": 80.0, "FedAvg": 79.0, "FedPer": 77.0}, "method"),
    }
    whole, semantic, structural, both = findings(results)
    assert whole.ours == pytest.approx(1.0, abs=0.2)  # ahead of FedAvg, the best other in our hands
    assert whole.places == 1
    assert (semantic.verdict, structural.verdict, both.verdict) == ("shows", "not run", "the opposite shows")
    assert semantic.ours == pytest.approx(1.0, abs=0.1)
    assert semantic.places == 6
    assert (semantic.printed, structural.printed) == (pytest.approx(3.69, abs=0.01), pytest.approx(3.27, abs=0.01))
    printed = {tuple(p.at.values()): p.mean for p in read_published(find_study("fedpub-table-8")) if not p.is_average}
    columns = {place[1:] for place in printed if place[0] == "FED-PUB"}
    means = {
        row: np.mean([printed["FED-PUB", *c] - printed[row, *c] for c in columns])
        for row in {place[0] for place in printed} - {"FED-PUB"}
    }
    assert whole.printed == pytest.approx(min(means.values()))
    assert all(one.verdict == "not run" and math.isnan(one.p) for one in findings({}))
