"""The cut of a graph into two groups, against trying all of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.nn import min_cut as module
from fedquilt.nn.min_cut import dense_cut, min_cut


def random_weights(seed: int, count: int) -> np.ndarray:
    weights = np.random.default_rng(seed).random((count, count))
    return (weights + weights.T) / 2


def across(weights: np.ndarray, side: np.ndarray) -> float:
    return float(weights[np.ix_(side, ~side)].sum())


@given(seed=st.integers(0, 2**31), count=st.integers(2, 8), dense=st.booleans())
def test_no_other_cut_is_smaller(seed: int, count: int, dense: bool) -> None:
    weights = random_weights(seed, count)
    found = dense_cut(weights) if dense else min_cut(torch.from_numpy(weights)).numpy()
    assert 0 < found.sum() < count
    sides = (np.array(bits) for bits in itertools.product([False, True], repeat=count) if 0 < sum(bits) < count)
    assert across(weights, found) == pytest.approx(min(across(weights, side) for side in sides))


@pytest.mark.parametrize("large", [2, 100])
def test_two_groups_that_share_nothing_are_found(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE", large)
    group = torch.tensor([0, 1, 0, 0, 1, 1, 0])
    weights = (group.unsqueeze(1) == group).float() * 0.3
    assert torch.equal(min_cut(weights), group == 1)
    assert torch.equal(min_cut(weights[:6, :6]), group[:6] == 1)  # as large as each other: the one without vertex 0
    assert 0 < int(min_cut(torch.zeros(4, 4)).sum()) < 4


def test_the_matrix_cuts_large_graphs_as_the_library_does() -> None:
    weights = random_weights(3, 60)
    weights[:25, 25:] *= 0.01
    weights[25:, :25] *= 0.01
    group = np.arange(60) < 25
    assert np.array_equal(min_cut(torch.from_numpy(weights)).numpy(), group)
    side = dense_cut(weights)
    assert np.array_equal(side, group) or np.array_equal(~side, group)


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="two vertices"):
        min_cut(torch.ones(1, 1))
    with pytest.raises(ValueError, match="not negative"):
        min_cut(torch.tensor([[0.0, -0.1], [-0.1, 0.0]]))
    with pytest.raises(ValueError, match="finite"):
        min_cut(torch.tensor([[0.0, torch.nan], [torch.nan, 0.0]]))
