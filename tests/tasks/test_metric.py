"""Metrics: direction, scale, range."""

from __future__ import annotations

import math

import pytest
import torch

from fedquilt.tasks.metric import Metric

SHARE = Metric("share", "Share", lambda cohort, outputs, part: outputs)
ERROR = Metric("error", "Error", SHARE.function, higher_is_better=False, scale=1.0, high=math.inf)


@pytest.mark.parametrize(("metric", "good", "bad"), [(SHARE, 0.9, 0.1), (ERROR, 0.1, 0.9)])
def test_better_follows_the_direction_for_numbers_and_tensors(metric: Metric, good: float, bad: float) -> None:
    assert metric.better(good, bad)
    assert not metric.better(bad, good)
    assert not metric.better(good, good)
    assert metric.better(bad, metric.worst)
    assert not metric.better(math.nan, metric.worst)
    found = metric.better(torch.tensor([good, bad, math.nan]), torch.tensor([bad, good, bad]))
    assert found.tolist() == [True, False, False]


def test_values_are_shown_scaled_and_undefined_ones_as_none() -> None:
    values = torch.tensor([0.5, math.nan, 1.0])
    assert SHARE.shown(values) == [50.0, None, 100.0]
    assert ERROR.shown(values) == [0.5, None, 1.0]


def test_the_range_is_that_before_scaling() -> None:
    assert [SHARE.possible(value) for value in (0.0, 1.0, 1.1, -0.1, math.nan)] == [True, True, False, False, False]
    assert ERROR.possible(7.0)
