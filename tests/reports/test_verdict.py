"""The headline of a comparison: told apart or not, above the floor or not."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedquilt.reports.verdict import Compared, difference, verdict

RNG = np.random.default_rng(0)
BASE = RNG.normal(70, 5, (3, 4))


def compared(method: str, ahead: float, noise: float = 0.1, **other: Any) -> Compared:
    tests = BASE + ahead + RNG.normal(0, noise, BASE.shape)
    result = {"method": method, "dataset": "d", "partition": "p", "clients": 4, "metric": "accuracy"}
    result |= {"test_mean": float(tests.mean()), "test_std": 0.5, "seeds": [{}, {}, {}]} | other
    return Compared(result, {seed: row.tolist() for seed, row in enumerate(tests)})


def test_a_real_difference_is_told_with_its_test() -> None:
    (sentence,) = verdict([compared("fedavg", 1.0), compared("quilt", 2.0)])
    assert sentence.startswith("quilt (")
    assert "has the best test accuracy; next is fedavg (" in sentence
    assert "Wilcoxon's signed-rank test over 12 pairs of seed and client: p = 0.00049" in sentence


def test_the_best_two_that_cannot_be_told_apart_are_said_so() -> None:
    sentences = verdict(
        [compared("fedavg", 1.0, noise=3.0), compared("quilt", 1.05, noise=3.0), compared("local", -9.0)]
    )
    assert len(sentences) == 1
    assert sentences[0].startswith("The best two cannot be told apart: ")


def test_nothing_beats_the_floor() -> None:
    floor = "No method beats the floor, "
    assert verdict([compared("local", 2.0), compared("fedavg", 0.0)])[1].startswith(
        f"{floor}local, which exchanges nothing"
    )
    same = compared("majority", 0.0, noise=0.0)
    other = Compared(same.result | {"method": "fedavg"}, same.tests)
    assert verdict([same, other])[1].startswith(f"{floor}majority, which learns nothing")
    assert not any(floor in sentence for sentence in verdict([compared("local", 0.0), compared("fedavg", 2.0)]))


def test_few_pairs_tell_nothing() -> None:
    one, two = (Compared(c.result, {0: c.tests[0]}) for c in (compared("local", 0.0), compared("fedavg", 9.0)))
    first, second = verdict([one, two])
    assert "4 pairs of seed and client are too few for a test, so that they cannot be told apart" in first
    assert second.startswith("Whether fedavg beats the floor, local, which exchanges nothing, is not known")


def test_lower_may_be_better_and_clients_without_a_value_are_left_out() -> None:
    one, two = compared("a", 0.0, 0.0, metric="auc"), compared("b", 1.0, 0.0, metric="auc")
    holes = Compared(two.result, {0: [None, *two.tests[0][1:]], 1: two.tests[1], 2: [1.0]})
    found = difference(holes, one)
    assert found.pairs == 7
    assert round(found.mean, 9) == 1.0


def test_settings_that_differ_and_single_results_have_no_verdict() -> None:
    assert verdict([compared("a", 0.0)]) == []
    assert verdict([compared("a", 0.0), compared("b", 0.0, test_mean=None)]) == []
    assert verdict([compared("a", 0.0), compared("b", 0.0, dataset="e")]) == []
