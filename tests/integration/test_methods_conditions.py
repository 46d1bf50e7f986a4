"""Every method where few take part, uploads are lost and clients straggle: cohorts, resume, and what stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedquilt.messages.message import declared
from fedquilt.methods.base import federated_methods
from fedquilt.nn import optim
from fedquilt.runs.folder import SeedFolder
from fedquilt.training.attendance import Conditions
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.federations import (
    assert_same,
    assert_same_training,
    copied,
    make_method,
    make_task,
    make_training,
    ragged_clients,
)

METHODS = [name for name in federated_methods() if name != "majority"]  # which has one round
HARD = Conditions(drop_out=0.4, stragglers=0.4)
# Of 5 clients 0.3 are two; stragglers who get nowhere sit out.
LOST_LATER, LOST_AT_ONCE = 241, 17  # seeds: nothing arrives in round 1, or in round 0
CALM = 1e-4  # see `test_methods_cohort_equals_ones`


def training(name: str, seed: int, rounds: int = 3, conditions: Conditions = HARD, **options: Any) -> Training:
    clients = ragged_clients()
    method = make_method(name, clients, make_task(clients, epochs=2, seed=seed, rounds=rounds))
    plan = Plan(rounds, 0.3, checkpoint_seconds=-1.0, conditions=conditions)
    return make_training(method, clients, plan, **options)


class Watch:
    """Sees to it in every round that nobody changes who does not take part, and the server does not where nothing arrives."""

    def __init__(self, training: Training) -> None:
        self.runner, self.empty, self.partly, self.slow = training.runner, 0, 0, 0
        self._run = self.runner.run
        self.runner.run = self.run  # type: ignore[method-assign]

    def run(self, round: int) -> Any:
        here = self.runner.attendance.at(round)
        before, server, down = copied(self.runner.engine.state()), copied(self.runner.server), copied(self.runner.down)
        output = self._run(round)
        others = [m for m in range(5) if m not in here.participants.tolist()]
        after = self.runner.engine.state()
        for name in (name for name in before if not name.startswith("figures.")):
            assert torch.equal(after[name][others], before[name][others]), (round, name)
        if not len(here.arrived):
            assert_same(copied(self.runner.server), server)
            assert_same(copied(self.runner.down), down)
            assert output.bytes_up == {}
        self.empty += not len(here.arrived)
        self.partly += 0 < len(here.arrived) < len(here.participants)
        self.slow += bool(here.efforts)
        return output


@pytest.mark.parametrize("name", METHODS)
def test_few_take_part_and_uploads_are_lost(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optim, "EPSILON", CALM)
    whole = training(name, LOST_LATER)
    watch = Watch(whole)
    whole.run()
    assert min(watch.empty, watch.partly, watch.slow) > 0
    for record in whole.records:  # an evaluated round has finite metrics of all clients
        if whole.method.phase(record["round"])[0].evaluated:
            assert all(value is not None for part in record["clients"].values() for value in part)
        assert all(value is not None for value in record.get("diagnostics", {}).values())
    # The same with every client computed alone.
    ones = training(name, LOST_LATER, cohort_size=1)
    ones.run()
    mine, other = whole.engine.personal(), ones.engine.personal()
    for weight in mine:
        assert float((mine[weight] - other[weight]).abs().max()) <= 1e-5, weight
    assert [record["bytes_up"] for record in ones.records] == [record["bytes_up"] for record in whole.records]
    # The same where it is stopped after the round of which nothing arrived, and goes on from its checkpoint.
    training(name, LOST_LATER, store=SeedFolder(tmp_path)).advance(2)
    resumed = training(name, LOST_LATER, store=SeedFolder(tmp_path))
    resumed.run()
    assert_same_training(resumed, whole)


@pytest.mark.parametrize("name", METHODS)
def test_nothing_arrives_in_the_first_round(name: str) -> None:
    first = training(name, LOST_AT_ONCE, rounds=2)
    watch = Watch(first)
    first.advance(2)
    assert watch.empty == 1
    assert first.records[0]["participants"] == []
    assert first.records[0]["lost"] == [1, 2]
    assert first.runner.attendance.at(1).participants.tolist() == [1, 2]  # they are asked again


@pytest.mark.parametrize("name", ["fedavg", "fedpub", "adafgl"])
def test_clients_join_and_leave(name: str, tmp_path: Path) -> None:
    conditions = Conditions(join_late=0.4, join_round=2, leave=0.2, leave_round=3)
    whole = training(name, 0, 4, conditions)
    attendance = whole.runner.attendance
    Watch(whole)
    whole.run()
    for record in (record for record in whole.records if "clients" in record):
        absent = [m for m in range(5) if record["clients"]["val"][m] is None]
        assert absent == (attendance.late.tolist() if record["round"] < 2 else [])
    assert whole.progress.best.round >= 2  # not before everyone is there
    assert None not in whole.progress.best.clients_test
    training(name, 0, 4, conditions, store=SeedFolder(tmp_path)).advance(2)
    resumed = training(name, 0, 4, conditions, store=SeedFolder(tmp_path))
    resumed.run()
    assert_same_training(resumed, whole)


@pytest.mark.parametrize("name", METHODS)
def test_what_a_client_receives_does_not_depend_on_who_else_does(name: str) -> None:
    """The participants of the next round, returning or not, get what they would get if everyone took part in it."""
    clients = ragged_clients()
    method = make_method(name, clients, make_task(clients, epochs=2, rounds=4))
    leaving = Conditions(leave=0.2, leave_round=2)  # until then everyone is there
    for share, conditions in ((0.6, Conditions()), (1.0, leaving)):
        one = make_training(method, clients, Plan(4, share, conditions=conditions))
        aggregate, rounds = one.runner.aggregate, iter(range(1, 9))

        def checked(server: Any, uploads: Any, senders: Any, receivers: Any) -> Any:
            assert receivers.tolist() == one.runner.attendance.at(next(rounds)).participants.tolist()  # noqa: B023
            everyone = aggregate(copied(server), uploads, senders, torch.arange(5))  # noqa: B023
            down = aggregate(server, uploads, senders, receivers)  # noqa: B023
            for what, value in copied(down).items():
                spec = declared(method.downloads, what)
                whole = copied(everyone)[what]
                assert spec is not None
                rows = whole if spec.shared else whole[receivers]
                torch.testing.assert_close(value, rows, rtol=1e-4, atol=1e-5)
            return down

        one.runner.aggregate = checked
        one.run()
