"""Spent epsilon: against the library's accountants, against the formula in NumPy, and how it moves."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from fedquilt.errors import FedquiltError
from fedquilt.privacy import accountant
from fedquilt.privacy.accountant import affordable_uploads, noise_for, spent_epsilon

dp_accounting = pytest.importorskip("dp_accounting", reason="needs the extra dp")

NOISE = st.floats(0.5, 200.0)
DELTA = st.floats(1e-9, 1e-2)
ROUNDS = st.integers(1, 500)


def delta_of(epsilon: float, sigma: float, distance: float) -> float:
    """Balle and Wang's theorem 8: delta of N(0, sigma^2) against N(distance, sigma^2), each entry, at epsilon."""
    a, b = distance / (2 * sigma), epsilon * sigma / distance
    return norm.cdf(a - b) - np.exp(epsilon) * norm.cdf(-a - b)


@pytest.mark.parametrize("noise", [2.0, 5.0, 30.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_one_upload_is_the_analytic_gaussian_mechanism(noise: float, delta: float) -> None:
    # The clip norm is one: two uploads are at most 2 apart, the noise has deviation `noise`.
    expected = brentq(lambda epsilon: delta_of(epsilon, noise, 2.0) - delta, 0.0, 50.0, xtol=1e-12)
    assert spent_epsilon(noise, 1, delta) == pytest.approx(expected, rel=1e-6)


def test_the_formula_is_what_two_ends_of_the_ball_give() -> None:
    # By simulation in one dimension: the worst two uploads are clip and -clip.
    noise, delta, count = 4.0, 1e-2, 2_000_000
    epsilon = spent_epsilon(noise, 1, delta)
    seen = np.random.default_rng(0).normal(1.0, noise, count)
    loss = ((seen + 1.0) ** 2 - (seen - 1.0) ** 2) / (2 * noise**2)
    missing = np.maximum(0.0, 1.0 - np.exp(epsilon - loss)).mean()
    assert missing == pytest.approx(delta, rel=0.03)


@pytest.mark.parametrize(("noise", "rounds"), [(4.0, 1), (10.0, 20), (40.0, 100)])
def test_many_uploads_as_the_librarys_accountants_compose_them(noise: float, rounds: int) -> None:
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(noise / 2), rounds)
    mine = spent_epsilon(noise, rounds, 1e-5)
    exact = dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(1e-5)
    assert mine == pytest.approx(exact, rel=1e-3)
    bound = dp_accounting.rdp.RdpAccountant().compose(event).get_epsilon(1e-5)
    assert mine <= bound <= 1.5 * mine


def test_nothing_sent_is_nothing_spent() -> None:
    assert spent_epsilon(1.0, 0, 1e-5) == 0.0
    assert spent_epsilon(1.0, 10, 1e-5, participation=0.0) == 0.0


def test_participation_counts_uploads_upward_and_amplifies_nothing() -> None:
    assert spent_epsilon(5.0, 10, 1e-5, participation=0.35) == spent_epsilon(5.0, 4, 1e-5)
    assert spent_epsilon(5.0, 10, 1e-5, participation=0.3) == spent_epsilon(5.0, 3, 1e-5)
    assert noise_for(3.0, 1e-5, 10, participation=0.3) == noise_for(3.0, 1e-5, 3)


@given(NOISE, NOISE, ROUNDS, ROUNDS, DELTA)
def test_more_rounds_spend_more_and_more_noise_less(a: float, b: float, r: int, s: int, delta: float) -> None:
    less, more = sorted((a, b))
    few, many = sorted((r, s))
    assert spent_epsilon(more, few, delta) <= spent_epsilon(less, few, delta)
    assert spent_epsilon(less, few, delta) <= spent_epsilon(less, many, delta)
    assert spent_epsilon(less, few, delta) <= spent_epsilon(less, few, delta / 2)


@given(st.floats(0.05, 200.0), DELTA, ROUNDS)
def test_noise_for_a_budget_spends_it_and_no_more(epsilon: float, delta: float, rounds: int) -> None:
    noise = noise_for(epsilon, delta, rounds)
    assert spent_epsilon(noise, rounds, delta) <= epsilon
    assert spent_epsilon(noise, rounds, delta) == pytest.approx(epsilon, rel=1e-5)


@settings(max_examples=30)
@given(NOISE, st.floats(0.05, 200.0), DELTA, st.integers(1, 300))
def test_affordable_uploads_are_the_last_within_the_budget(
    noise: float, epsilon: float, delta: float, most: int
) -> None:
    count = affordable_uploads(noise, epsilon, delta, most)
    assert 0 <= count <= most
    assert count == 0 or spent_epsilon(noise, count, delta) <= epsilon * (1 + 1e-8)
    assert count == most or spent_epsilon(noise, count + 1, delta) > epsilon


def test_a_budget_for_some_rounds_allows_just_them() -> None:
    for rounds in (1, 7, 100):
        assert affordable_uploads(noise_for(2.0, 1e-5, rounds), 2.0, 1e-5, 1000) == rounds


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    accountant._epsilon.cache_clear()
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(FedquiltError, match=r"run 'pip install \"fedquilt\[dp\]\"'"):
        spent_epsilon(math.pi, 1, 1e-5)
