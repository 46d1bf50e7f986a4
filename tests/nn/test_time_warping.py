"""Dynamic time warping of all pairs, against the plain table of each pair."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.nn.time_warping import warping_distances
from support.clients import assert_near


def plain(x: np.ndarray, y: np.ndarray) -> float:
    table = np.full((len(x) + 1, len(y) + 1), np.inf)
    table[0, 0] = 0.0
    for s, a in enumerate(x, start=1):
        for t, b in enumerate(y, start=1):
            table[s, t] = (a - b) ** 2 + min(table[s - 1, t], table[s, t - 1], table[s - 1, t - 1])
    return float(np.sqrt(table[-1, -1]))


@given(seed=st.integers(0, 2**31), count=st.integers(1, 4), length=st.integers(1, 8))
def test_distances_equal_a_table_for_each_pair(seed: int, count: int, length: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((count, length))
    expected = [[plain(x, y) for y in rows] for x in rows]
    assert_near(warping_distances(torch.from_numpy(rows)), torch.tensor(expected, dtype=torch.float64))


def test_a_delay_is_no_distance_and_another_height_is() -> None:
    early = [0.0, 1.0, 5.0, 1.0, 0.0, 0.0]
    late = [0.0, 0.0, 1.0, 5.0, 1.0, 0.0]
    low = [0.0, 1.0, 2.0, 1.0, 0.0, 0.0]
    found = warping_distances(torch.tensor([early, late, low]))
    assert found[0, 1] == 0
    assert found[0, 2] == 3
