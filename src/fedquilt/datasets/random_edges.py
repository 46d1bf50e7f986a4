"""Random edges for synthetic graphs."""

from __future__ import annotations

import numpy as np


def random_edges(rng: np.random.Generator, chance: np.ndarray) -> np.ndarray:
    """[N, N] -> [2, E]: join each pair of nodes u < v with chance[u, v], independently."""
    hit = rng.random(chance.shape, dtype=np.float32) < chance
    return np.stack(np.nonzero(np.triu(hit, k=1)))
