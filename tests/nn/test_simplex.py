"""Shares nearest to given numbers, against a general solver."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedquilt.nn.simplex import nearest_shares
from support.clients import assert_near


@given(seed=st.integers(0, 2**31), count=st.integers(1, 7), spread=st.sampled_from([0.05, 1.0, 30.0]))
def test_shares_are_those_of_a_quadratic_program(seed: int, count: int, spread: float) -> None:
    rows = spread * np.random.default_rng(seed).standard_normal((2, count))
    found = nearest_shares(torch.from_numpy(rows))
    assert_near(found.sum(1), torch.ones(2, dtype=torch.float64))
    assert bool((found >= 0).all())
    for row, shares in zip(rows, found.numpy(), strict=True):
        solved = minimize(
            lambda w, v=row: ((w - v) ** 2).sum(),
            np.full(count, 1 / count),
            jac=lambda w, v=row: 2 * (w - v),
            bounds=[(0, None)] * count,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 200},
        )
        assert ((shares - row) ** 2).sum() <= solved.fun + 1e-6 * (1 + spread**2)
        assert np.abs(shares - solved.x).max() < 1e-3


def test_shares_stay_as_they_are_and_equal_numbers_share_equally() -> None:
    shares = torch.tensor([[0.2, 0.3, 0.5], [0.0, 1.0, 0.0]])
    assert_near(nearest_shares(shares), shares)
    assert_near(nearest_shares(torch.full((1, 4), 7.0)), torch.full((1, 4), 0.25))
    assert_near(nearest_shares(torch.tensor([-50.0, 3.0, 0.0])), torch.tensor([0.0, 1.0, 0.0]))
