from __future__ import annotations

import math

import numpy as np

from fedquilt.reports.over_seeds import best_column, mean_and_std, values_by_round


def test_seeds_of_different_length_are_aligned_by_round() -> None:
    seeds = [
        [{"round": 0, "val": 1.0}, {"round": 2, "val": 3.0}],
        [{"round": 1, "val": None}, {"round": 2, "val": 5.0}],
    ]
    rounds, values = values_by_round(seeds, "val")
    assert rounds.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(values, [[1.0, math.nan, 3.0], [math.nan, math.nan, 5.0]])
    assert values_by_round([[], []], "val")[0].tolist() == []


def test_mean_and_population_deviation_leave_out_gaps() -> None:
    mean, std = mean_and_std(np.array([[1.0, 2.0, math.nan], [3.0, math.nan, math.nan]]))
    np.testing.assert_array_equal(mean, [2.0, 2.0, math.nan])
    np.testing.assert_array_equal(std, [1.0, 0.0, math.nan])


def test_the_best_round_has_a_test_value_and_follows_the_direction() -> None:
    val, test = np.array([5.0, 9.0, 7.0, 7.0, math.nan]), np.array([1.0, math.nan, 2.0, 3.0, 4.0])
    assert best_column(val, test) == 2
    assert best_column(val, test, higher_is_better=False) == 0
    assert best_column(val, np.full(5, math.nan)) is None
