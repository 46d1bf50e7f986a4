"""Numbers of pairs, and pairs that are not joined."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.graphs.node_pairs import draw_pairs, number_pairs, pair_count, pairs_of


def test_pairs_are_numbered_without_gaps() -> None:
    pairs = np.array(sorted(combinations(range(7), 2), key=lambda pair: pair[::-1])).T
    assert number_pairs(pairs).tolist() == list(range(pair_count(7)))
    assert (pairs_of(np.arange(pair_count(7))) == pairs).all()


@given(st.integers(2, 10**7), st.integers(-2, 2))
def test_numbers_of_pairs(node: int, shift: int) -> None:
    """Where a row of pairs ends and the next begins, in graphs of millions of nodes too."""
    numbers = np.array([max(0, node * (node - 1) // 2 + shift)])
    (u,), (v,) = pairs_of(numbers)
    assert 0 <= u < v
    assert number_pairs(np.array([[u], [v]])) == numbers


@given(st.integers(1, 8), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_all_pairs_that_are_not_joined_can_be_drawn_and_no_other(nodes: int, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    joined = np.flatnonzero(rng.random(pair_count(nodes)) < share)
    free = pair_count(nodes) - joined.size
    drawn = number_pairs(draw_pairs(nodes, joined, free, rng))
    assert sorted([*drawn.tolist(), *joined.tolist()]) == list(range(pair_count(nodes)))
