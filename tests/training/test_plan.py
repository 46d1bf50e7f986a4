"""The plan of a training: evaluated rounds, patience, and when metrics have to be read."""

from __future__ import annotations

import pytest

from fedquilt.training.plan import SIMILARITY_ROUNDS, Plan


def test_every_so_many_rounds_and_the_last_are_evaluated() -> None:
    plan = Plan(7, evaluate_every=3)
    assert [round for round in range(7) if plan.evaluates(round)] == [2, 5, 6]
    assert [round for round in range(7) if plan.is_last(round)] == [6]


@pytest.mark.parametrize(
    ("best", "next_round", "exhausted"), [(-1, 9, False), (2, 4, False), (2, 5, True), (2, 6, True)]
)
def test_patience_counts_rounds_since_the_best(best: int, next_round: int, exhausted: bool) -> None:
    assert Plan(20, patience=2).patience_exhausted(next_round, best) == exhausted
    assert not Plan(20).patience_exhausted(next_round, best)


def test_metrics_are_read_where_a_similarity_is_stored() -> None:
    plan = Plan(1000)
    for first in range(300):
        later = [round for round in SIMILARITY_ROUNDS if round >= first]
        assert plan.next_decision(first, -1) == (later[0] + 1 if later else 1000)


@pytest.mark.parametrize(
    ("first", "best", "every", "decision"),
    [
        (20, 18, 1, 22),  # round 21 is the third after the best one
        (20, 15, 1, 21),  # patience is at its end: read after the next round
        (20, -1, 1, 24),  # the next round may be the best
        (20, -1, 7, 24),  # as may round 20, the first that is evaluated
        (21, -1, 7, 31),  # round 27 is
    ],
)
def test_metrics_are_read_before_patience_may_be_exhausted(first: int, best: int, every: int, decision: int) -> None:
    assert Plan(1000, patience=3, evaluate_every=every).next_decision(first, best) == decision
