"""Clients drawn at random: participants of a round, and groups for a scenario."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.training.client_sampling import participants, some_clients


@pytest.mark.parametrize(
    ("clients", "share", "count"), [(10, 0.6, 6), (10, 0.55, 6), (5, 0.01, 1), (10, 0.3, 3), (7, 1, 7)]
)
def test_participants_are_so_many_distinct_and_sorted(clients: int, share: float, count: int) -> None:
    for r in range(20):
        chosen = participants(3, r, clients, share)
        assert torch.equal(chosen, participants(3, r, clients, share))
        assert len(chosen) == count
        assert chosen.tolist() == sorted(set(chosen.tolist()))
        assert 0 <= int(chosen[0]) <= int(chosen[-1]) < clients


def test_participants_change_with_round_and_seed_and_everyone_gets_a_turn() -> None:
    drawn = [tuple(participants(0, r, 10, 0.3).tolist()) for r in range(100)]
    assert len(set(drawn)) > 50
    assert drawn != [tuple(participants(1, r, 10, 0.3).tolist()) for r in range(100)]
    turns = np.bincount(np.concatenate(drawn), minlength=10)
    assert turns.min() > 30 - 5 * math.sqrt(100 * 0.3 * 0.7)


@given(st.integers(2, 60), st.floats(0.01, 0.99), st.integers(0, 5))
def test_so_many_clients_are_chosen(clients: int, share: float, seed: int) -> None:
    chosen = some_clients(seed, clients, share, "attack", "clients").tolist()
    assert chosen == sorted(set(chosen))
    assert set(chosen) < set(range(clients))
    assert len(chosen) == min(max(1, round(share * clients)), clients - 1)
    assert chosen == some_clients(seed, clients, share, "attack", "clients").tolist()


def test_seed_and_owner_decide_who() -> None:
    drawn = {
        tuple(some_clients(seed, 20, 0.3, owner).tolist()) for seed in range(4) for owner in ("attack", "hold out")
    }
    assert len(drawn) == 8
    with pytest.raises(FedquiltError, match="A single client cannot be parted into two groups"):
        some_clients(0, 1, 0.5, "attack")
