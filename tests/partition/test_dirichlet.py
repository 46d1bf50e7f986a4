"""The Dirichlet distribution in logarithms."""

from __future__ import annotations

import numpy as np
import pytest

from fedquilt.partition.dirichlet import log_dirichlet


@pytest.mark.parametrize("alpha", [0.3, 1.0, 20.0])
def test_shares_have_the_moments_of_the_distribution(alpha: float) -> None:
    concentration = alpha * np.array([0.2, 0.3, 0.5])
    shares = np.exp(log_dirichlet(np.random.default_rng(0), np.tile(concentration, (20_000, 1))))
    np.testing.assert_allclose(shares.sum(1), 1.0)
    mean = concentration / alpha
    np.testing.assert_allclose(shares.mean(0), mean, atol=0.02)
    np.testing.assert_allclose(shares.var(0), mean * (1 - mean) / (alpha + 1), rtol=0.1)


def test_a_tiny_concentration_is_no_division_by_zero() -> None:
    logs = log_dirichlet(np.random.default_rng(0), np.full((5, 4), 1e-6))
    assert np.isfinite(logs).all()
    np.testing.assert_allclose(np.exp(logs).max(1), 1.0)
    assert (np.diff(np.sort(logs, axis=1), axis=1) > 0).all()  # smaller shares still have an order
