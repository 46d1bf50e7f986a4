"""Pairs of different nodes, numbered without gaps: which of them are joined, and random ones that are not.

The number of a pair u < v is v (v - 1) / 2 + u, which orders pairs as (0,1), (0,2), (1,2), (0,3), ... The k-th number that is
not in a sorted list t_0 < t_1 < ... is k plus the count of those i with t_i - i <= k. So a pair that is not joined is drawn
with one search and without rejections.
"""

from __future__ import annotations

import numpy as np


def pair_count(nodes: int) -> int:
    """How many pairs of different nodes there are."""
    return nodes * (nodes - 1) // 2


def number_pairs(pairs: np.ndarray) -> np.ndarray:
    """The numbers of pairs u < v: [2, E] -> [E]."""
    u, v = pairs
    return v * (v - 1) // 2 + u


def pairs_of(numbers: np.ndarray) -> np.ndarray:
    """The reverse of `number_pairs`: [E] -> [2, E]."""
    v = ((1 + np.sqrt(1 + 8 * numbers.astype(np.float64))) / 2).astype(np.int64)
    v -= v * (v - 1) // 2 > numbers  # the root is a float, and may be rounded to the next number
    v += v * (v + 1) // 2 <= numbers
    return np.stack([numbers - v * (v - 1) // 2, v])


def draw_pairs(nodes: int, joined: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw `count` different pairs that are not joined, each with the same chance: [2, count], u < v.

    Args:
        nodes: how many nodes there are.
        joined: [E] the numbers of the joined pairs, in rising order.
        count: at most as many as there are pairs that are not joined.
        rng: the random generator.
    """
    free = pair_count(nodes) - joined.size
    drawn = rng.choice(free, count, replace=False, shuffle=False) if free else np.zeros(0, dtype=np.int64)
    return pairs_of(drawn + np.searchsorted(joined - np.arange(joined.size), drawn, side="right"))
