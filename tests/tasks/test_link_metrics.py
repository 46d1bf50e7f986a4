"""Hits@K against a few lines of NumPy, client by client."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.tasks.link_metrics import hits_at


def plain(k: int, score: np.ndarray, positive: np.ndarray) -> float:
    """As the Open Graph Benchmark has it, but undefined where there are fewer than K negatives."""
    negative = np.sort(score[~positive])
    if len(negative) < k or not positive.any():
        return math.nan
    return float((score[positive] > negative[-k]).mean())


@given(st.integers(0, 999), st.integers(1, 4), st.integers(0, 60), st.sampled_from([1, 3, 10]))
def test_hits_are_those_of_each_client(seed: int, clients: int, rows: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 12, rows) / 4.0  # with ties
    positive, owner = rng.random(rows) < 0.4, rng.integers(0, clients, rows)
    found = hits_at(k, *(torch.from_numpy(array) for array in (score, positive, owner)), clients)
    expected = [plain(k, score[owner == m], positive[owner == m]) for m in range(clients)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_a_tie_with_the_limit_is_no_hit() -> None:
    score, positive = torch.tensor([2.0, 1.0, 1.0, 0.0]), torch.tensor([True, True, False, False])
    assert hits_at(1, score, positive, torch.zeros(4, dtype=torch.long), 1).item() == 0.5
    assert hits_at(2, score, positive, torch.zeros(4, dtype=torch.long), 1).item() == 1.0
    assert hits_at(3, score, positive, torch.zeros(4, dtype=torch.long), 1).isnan().all()
