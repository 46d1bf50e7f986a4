from __future__ import annotations

import numpy as np

from fedquilt.datasets.random_edges import random_edges


def test_pairs_are_joined_with_their_own_chance() -> None:
    chance = np.zeros((400, 400))
    chance[:200, :200], chance[200:, 200:] = 0.25, 1.0
    u, v = random_edges(np.random.default_rng(0), chance)
    assert (u < v).all()
    inside, pairs = (v < 200).sum(), 200 * 199 / 2
    assert abs(inside / pairs - 0.25) < 0.02
    assert (u >= 200).sum() == pairs
    assert inside + pairs == len(u)
