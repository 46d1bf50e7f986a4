"""Who takes part in a round, who straggles, whose upload is lost, who joins late and who leaves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.training.attendance import Attendance, Conditions
from fedquilt.training.client_sampling import participants

ROUNDS = 300


def attendance(
    participation: float = 1.0, steps: int = 4, clients: int = 10, seed: int = 0, **given: float
) -> Attendance:
    return Attendance(seed, clients, participation, Conditions(**given), lambda round: steps)


@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
def test_without_conditions_the_participants_are_the_usual_ones(share: float) -> None:
    every = attendance(share)
    for round in range(5):
        here = every.at(round)
        assert torch.equal(here.participants, participants(0, round, 10, share))
        assert torch.equal(here.arrived, here.participants)
        assert not here.efforts
        assert every.joined(round) is None
    assert every.complete == (share == 1.0)


def test_uploads_are_lost_with_the_chance_that_is_asked_for() -> None:
    rounds = [attendance(drop_out=0.2).at(r) for r in (3, 4)]
    assert [here.arrived.tolist() for here in rounds] == [
        attendance(drop_out=0.2).at(r).arrived.tolist() for r in (3, 4)
    ]
    every = attendance(drop_out=0.2)
    lost = [10 - len(every.at(r).arrived) for r in range(ROUNDS)]
    assert np.mean(lost) == pytest.approx(2.0, abs=4 * np.sqrt(10 * 0.2 * 0.8 / ROUNDS))
    assert all(torch.isin(every.at(r).arrived, every.at(r).participants).all() for r in range(ROUNDS))


def test_the_same_clients_are_asked_again_where_nothing_arrived() -> None:
    every = attendance(0.1, drop_out=0.5)
    asked = [every.at(r) for r in range(60)]
    again = [r for r in range(59) if not len(asked[r].arrived)]
    assert 15 < len(again) < 45
    for r in range(59):
        drawn = participants(0, r + 1, 10, 0.1)
        assert torch.equal(asked[r + 1].participants, asked[r].participants if r in again else drawn)
    late = attendance(0.1, drop_out=0.5)  # as after a resume: rounds are asked for from the middle on
    assert torch.equal(late.at(40).participants, asked[40].participants)


def test_stragglers_do_a_share_of_their_steps_and_sit_out_where_it_is_none() -> None:
    every = attendance(stragglers=0.5, steps=4)
    out, shares = 0, []
    for r in range(ROUNDS):
        here = every.at(r)
        out += 10 - len(here.participants)
        shares += here.efforts.values()
        assert set(here.efforts) <= set(here.participants.tolist())
        assert torch.equal(here.arrived, here.participants)
    assert out / (10 * ROUNDS) == pytest.approx(0.5 / 4, abs=0.03)  # a quarter of them gets nowhere
    assert min(shares) >= 0.25
    assert np.mean(shares) == pytest.approx((0.25 + 1) / 2, abs=0.03)
    # A single step cannot be parted: all stragglers sit out, and who straggles does not depend on the steps.
    for r in range(20):
        one, four = attendance(stragglers=0.5, steps=1).at(r), every.at(r)
        assert not one.efforts
        assert set(one.participants.tolist()) == set(four.participants.tolist()) - set(four.efforts)


def test_somebody_always_takes_part() -> None:
    for r in range(20):
        here = attendance(stragglers=1.0, steps=1).at(r)
        assert len(here.participants) == 1
        assert list(here.efforts) == here.participants.tolist()


def test_clients_join_late_and_leave() -> None:
    every = attendance(0.5, join_late=0.3, join_round=4, leave=0.2, leave_round=6)
    late, leavers = set(every.late.tolist()), set(every.leavers.tolist())
    assert (len(late), len(leavers), late & leavers) == (3, 2, set())
    for r in range(12):
        away = (late if r < 4 else set()) | (leavers if r >= 6 else set())
        assert set(every.members(r).tolist()) == set(range(10)) - away
        assert len(every.at(r).participants) == -(-(10 - len(away)) // 2)  # a share of those who are there
        assert not away & set(every.at(r).participants.tolist())
        joined = every.joined(r)
        assert joined is None if r >= 4 else set(torch.nonzero(~joined).ravel().tolist()) == late
    seen = {m for r in range(6, 60) for m in every.at(r).participants.tolist()}
    assert seen == set(range(10)) - leavers


def test_a_seed_decides_and_shares_are_bounded() -> None:
    drawn = {tuple(attendance(seed=seed, join_late=0.3, join_round=1).late.tolist()) for seed in range(8)}
    assert len(drawn) > 3
    assert len(attendance(join_late=0.99, join_round=1).late) == 9
    both = attendance(join_late=0.9, join_round=9, clients=4)
    assert len(both.late) == 3
    with pytest.raises(FedquiltError, match="too few for some to join late or leave"):
        attendance(join_late=0.9, join_round=9, leave=0.5, leave_round=2, clients=4)
