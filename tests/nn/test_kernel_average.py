"""Averages by similarity in thin factors equal the softmax over a matrix of all pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from fedquilt.nn import kernel_average
from fedquilt.nn.kernel_average import RANK, TOLERANCE, factor, shares
from support.clients import Largest, assert_near, doubles, numbers

seeds = st.integers(0, 2**31)
taus = st.sampled_from([0.5, 3.0, 5.0, 20.0])


def units(seed: int, count: int, width: int = 8) -> Tensor:
    return F.normalize(numbers(seed, count, width), dim=1)


def communities(seed: int, count: int, groups: int, spread: float = 0.02, width: int = 16) -> Tensor:
    """Clients around a few centres, in no particular order."""
    of = torch.randint(groups, (count,), generator=torch.Generator().manual_seed(seed))
    return F.normalize(units(seed + 1, groups, width)[of] + spread * numbers(seed + 2, count, width), dim=1)


def softmax(senders: Tensor, receivers: Tensor, tau: float) -> np.ndarray:
    score = tau * receivers.double().numpy() @ senders.double().numpy().T
    weight = np.exp(score - score.max(1, keepdims=True))
    return weight / weight.sum(1, keepdims=True)


def written_out(senders: Tensor, receivers: Tensor, tau: float, own: Tensor) -> np.ndarray:
    """What the factors amount to, [r, s]."""
    left, right, extra = shares(senders, receivers, tau, own)
    assert left.dtype == right.dtype == extra.dtype == torch.float32
    matrix = (left.double() @ right.double()).numpy()
    for i, j in enumerate(own.tolist()):
        if j >= 0:
            matrix[i, j] += float(extra[i])
        else:
            assert float(extra[i]) == 0.0
    return matrix


def kernel(unit: Tensor, tau: float) -> Tensor:
    unit = unit.double()
    return torch.exp(tau * (unit @ unit.T - 1.0))


# -- the factors -----------------------------------------------------------------------------------


@example(seed=0, count=1, tau=3.0)
@given(seed=seeds, count=st.integers(1, 40), tau=taus)
def test_no_entry_lacks_more_than_the_tolerance_and_the_diagonal_nothing(seed: int, count: int, tau: float) -> None:
    unit = units(seed, count)
    told, rest = factor(unit, tau)
    assert told.dtype == rest.dtype == torch.float64
    assert told.shape[1] <= min(RANK, count)
    lacks = kernel(unit, tau) - told @ told.T
    assert float(rest.max()) <= TOLERANCE
    assert float(rest.min()) >= 0.0
    assert float((lacks.diagonal() - rest).abs().max()) < 1e-7  # units are of single precision
    assert float(lacks.abs().max()) <= TOLERANCE + 1e-7


def test_as_many_columns_as_communities_are_enough() -> None:
    centres = F.normalize(doubles(0, 5, 16), dim=1)
    unit = centres[torch.arange(300) % 5]
    told, rest = factor(unit, 3.0)
    assert told.shape == (300, 5)
    assert float(rest.max()) <= TOLERANCE
    assert_near(told @ told.T, kernel(unit, 3.0), 1e-10)
    assert factor(centres[:1].expand(50, -1), 3.0)[0].shape == (50, 1)


def test_columns_end_at_the_rank_and_the_diagonal_stays_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_average, "RANK", 6)
    unit = units(3, 40)
    told, rest = factor(unit, 5.0)
    assert told.shape == (40, 6)
    assert float(rest.max()) > TOLERANCE
    assert_near(told.square().sum(1) + rest, torch.ones(40, dtype=torch.float64), 5e-6)
    known = (told @ told.T + rest.diag()).numpy()
    matrix = written_out(unit, unit, 5.0, torch.arange(40))
    assert np.allclose(matrix, known / known.sum(1, keepdims=True), atol=1e-6)


def test_columns_are_the_clients_that_are_told_worst() -> None:
    """Each step makes the largest entry of the rest zero, and no entry of it larger."""
    unit = F.normalize(doubles(5, 30, 8), dim=1)
    before = torch.ones(30, dtype=torch.float64)
    told, _ = factor(unit, 3.0)
    for column in range(told.shape[1]):
        after = before - told[:, column].square()
        assert abs(float(after[before.argmax()])) < 1e-9
        assert bool((after <= before).all())
        before = after.clamp_min(0.0)


# -- the softmax -----------------------------------------------------------------------------------


@example(seed=0, count=RANK, groups=RANK, tau=20.0)
@given(seed=seeds, count=st.integers(1, 60), groups=st.integers(1, 60), tau=taus)
def test_everyone_sends_and_receives(seed: int, count: int, groups: int, tau: float) -> None:
    """No more clients than columns: nothing is lacking but what is below the tolerance."""
    unit = communities(seed, count, groups, spread=1.0)
    matrix = written_out(unit, unit, tau, torch.arange(count))
    assert np.allclose(matrix.sum(1), 1.0, atol=1e-5)
    assert np.abs(matrix - softmax(unit, unit, tau)).max() <= 4 * TOLERANCE


@pytest.mark.parametrize("tau", [3.0, 5.0])
@pytest.mark.parametrize(("groups", "spread"), [(1, 0.02), (1, 0.005), (4, 0.005), (6, 0.005), (20, 0.02)])
def test_many_clients_in_few_communities(groups: int, spread: float, tau: float) -> None:
    unit = communities(groups, 600, groups, spread)
    with Largest() as largest:
        shares(unit, unit, tau, torch.arange(600))
    assert largest.numbers <= 600 * (RANK + 1)  # no matrix of all pairs
    matrix, expected = written_out(unit, unit, tau, torch.arange(600)), softmax(unit, unit, tau)
    assert np.allclose(matrix.sum(1), 1.0, atol=1e-5)
    assert np.abs(matrix - expected).max() <= 10 * TOLERANCE
    assert (spread < 0.01) <= (float(factor(unit, tau)[1].max()) <= TOLERANCE)
    if (
        spread < 0.01
    ):  # a weight is an entry of the kernel over a sum of many, which divides what the entry lacks as well
        total = kernel(unit, tau).sum(1, keepdim=True).numpy()
        assert (np.abs(matrix - expected) * total).max() <= 3 * TOLERANCE


@pytest.mark.parametrize("count", [2, 17, RANK])
def test_up_to_the_rank_it_is_exact_where_nothing_is_left_out(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_average, "TOLERANCE", 0.0)
    unit = units(1, count)
    matrix = written_out(unit, unit, 5.0, torch.arange(count))
    assert np.abs(matrix - softmax(unit, unit, 5.0)).max() < 1e-6


@given(data=st.data(), seed=seeds, count=st.integers(2, 25), tau=taus)
def test_receivers_need_not_be_senders(data: st.DataObject, seed: int, count: int, tau: float) -> None:
    """Some of the receivers send, some do not."""
    someone = st.lists(st.integers(0, count - 1), min_size=1, max_size=count, unique=True).map(sorted)
    senders, receivers = data.draw(someone), data.draw(someone)
    unit = units(seed, count)
    own = torch.tensor([senders.index(m) if m in senders else -1 for m in receivers])
    matrix = written_out(unit[senders], unit[receivers], tau, own)
    assert matrix.shape == (len(receivers), len(senders))
    assert np.allclose(matrix.sum(1), 1.0, atol=1e-5)
    assert np.abs(matrix - softmax(unit[senders], unit[receivers], tau)).max() <= 4 * TOLERANCE


@pytest.mark.parametrize("tau", [0.5, 3.0, 5.0])
def test_a_receiver_of_whom_nothing_is_known_is_as_like_to_all(tau: float) -> None:
    senders, receivers = units(0, 9), units(1, 4)
    receivers[[0, 2]] = 0.0
    matrix = written_out(senders, receivers, tau, torch.full((4,), -1))
    expected = softmax(senders, receivers, tau)
    assert np.allclose(expected[[0, 2]], 1 / 9)
    # What is lacking counts for more where all entries of a row are as small as exp(-tau).
    assert np.abs(matrix - expected).max() <= 2 * TOLERANCE * np.exp(tau) / 9
    assert np.allclose(matrix.sum(1), 1.0, atol=1e-5)


def test_a_sender_whose_model_says_nothing_is_counted_like_any_other() -> None:
    """An embedding of zeros, from everyone."""
    nothing = torch.zeros(6, 4)
    matrix = written_out(nothing, nothing, 3.0, torch.arange(6))
    assert np.allclose(matrix, 1 / 6, atol=4 * TOLERANCE)


@pytest.mark.parametrize("rank", [1, 6, 128])
def test_what_a_client_counts_for_itself_is_exact(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far apart and sharp: almost nothing is shared, and all of it is on the diagonal, however few columns there are."""
    monkeypatch.setattr(kernel_average, "RANK", rank)
    unit = torch.eye(40)
    left, right, extra = shares(unit, unit, 20.0, torch.arange(40))
    own = (left * right.T).sum(1) + extra
    assert torch.allclose(own, torch.full((40,), 1 / (1 + 39 * np.exp(-20.0))), atol=1e-6)


def test_nothing_known_is_as_like_to_all_of_any_number_of_senders() -> None:
    senders, receivers = units(0, 4 * RANK, 64), torch.zeros(2, 64)
    matrix = written_out(senders, receivers, 5.0, torch.full((2,), -1))
    assert np.abs(matrix * len(senders) - 1.0).max() < 0.01
