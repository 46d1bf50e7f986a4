"""Moments and confidences over a cohort against NumPy, client by client."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.nn.moments import Kind, mixed_moments, moment_count, smoothing_confidence
from support.clients import assert_near, dense_adjacency, hard_clients, lay, numbers, with_weights


@pytest.mark.parametrize("layout", ["padded", "compact"])
@pytest.mark.parametrize("kind", ["raw", "central", "hybrid"])
def test_moments_equal_numpy(kind: Kind, layout: str) -> None:
    clients = hard_clients()
    cohort = lay(clients, layout)
    signals = [numbers(seed, cohort.rows, 3).softmax(1) for seed in (1, 2)]
    found = mixed_moments(cohort, signals, 4, kind)
    assert found.shape == (len(clients), moment_count(kind, 4) * 2 * 3)
    for m in range(len(clients)):
        y = np.concatenate([cohort.parts_of(signal)[m].double().numpy() for signal in signals], axis=1)
        raw = [(y**p).mean(0) for p in (1, 2, 3, 4)]
        central = [((y - y.mean(0)) ** p).mean(0) for p in (2, 3, 4)]
        expected = {"raw": raw, "central": central, "hybrid": raw + central}[kind]
        assert_near(found[m], torch.from_numpy(np.concatenate(expected)))


@pytest.mark.parametrize("layout", ["padded", "compact"])
def test_confidence_equals_numpy_with_weighted_degrees(layout: str) -> None:
    clients = with_weights(hard_clients())
    cohort = lay(clients, layout)
    y = (3 * numbers(3, cohort.rows, 3)).softmax(1)
    found = smoothing_confidence(cohort, y)
    for m, client in enumerate(clients):
        own = cohort.parts_of(y)[m].double().numpy()
        degree = dense_adjacency(client).sum(1) + 1
        sure = (np.exp(-1) + own * np.log(own)).sum(1) / (3 * np.exp(-1))
        expected = len(own) * np.average(sure, weights=degree)
        assert_near(found[m], torch.tensor(expected))


def test_confidence_is_highest_where_one_class_is_certain() -> None:
    cohort = lay(hard_clients())
    certain = torch.eye(3)[torch.arange(cohort.rows) % 3]
    unsure = torch.full((cohort.rows, 3), 1 / 3)
    high, low = smoothing_confidence(cohort, certain), smoothing_confidence(cohort, unsure)
    assert_near(high, cohort.node_count.float())
    assert (high > 100 * low).all()
    assert (low >= 0).all()
