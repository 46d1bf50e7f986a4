"""Rounds in which some sit out, captured: all compute, and what comes of it is what comes of the participants alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fedquilt.messages.message import Sparse, TensorSpec, dense
from fedquilt.methods.base import methods
from fedquilt.nn import optim
from fedquilt.training.attendance import Attendance, Conditions
from fedquilt.training.captured_rounds import CapturedRounds
from fedquilt.training.device_attendance import LEAST_SHARE, DeviceAttendance, can_be_captured
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.federations import make_method, make_task, make_training, ragged_clients, without_seconds
from training.test_captured_rounds import Eager, Replaying, graphs_of

ROUNDS = 14
CALM = 1e-4  # see `test_methods_cohort_equals_ones`


@pytest.fixture(autouse=True)
def _calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optim, "EPSILON", CALM)


def begin(name: str, plan: Plan, **settings: Any) -> Training:
    clients = ragged_clients()
    method = make_method(name, clients, make_task(clients, epochs=2, rounds=ROUNDS), **settings)
    return make_training(method, clients, plan)


def captured(one: Training, kind: type[Eager] = Replaying) -> Training:
    one.runner.compute_everyone()
    graphs = kind()
    if isinstance(graphs, Replaying):
        graphs.training = one
    if one.method.host_server:
        one.runner.capture_clients(graphs)
    else:
        one.captured_rounds = CapturedRounds(one.runner, one.progress, graphs)
    return one


def assert_close(one: dict[str, Tensor], two: dict[str, Tensor]) -> None:
    assert set(one) == set(two)
    for name, tensor in one.items():
        torch.testing.assert_close(
            tensor, two[name], rtol=1e-4, atol=1e-4, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
        )


def assert_same_results(one: Training, two: Training) -> None:
    for mine, other in zip(without_seconds(one.records), without_seconds(two.records), strict=True):
        for key in ("round", "participants", "lost", "phase", "bytes_down"):
            assert mine.get(key) == other.get(key)
        figures = [
            {key: entry[key] for key in ("val", "train_loss", "val_loss") if key in entry} for entry in (mine, other)
        ]
        assert figures[0] == pytest.approx(figures[1], rel=1e-4, abs=1e-4), mine["round"]
    assert_close(one.engine.state(), two.engine.state())
    assert_close(one.server, two.server)
    assert one.progress.best.round == two.progress.best.round
    assert_close({n: dense(v) for n, v in one.down.items()}, {n: dense(v) for n, v in two.down.items()})


CONDITIONS = {
    "participation": Plan(ROUNDS, participation=0.6),
    "drop-outs": Plan(ROUNDS, participation=0.8, conditions=Conditions(drop_out=0.4)),
    "coming and going": Plan(ROUNDS, conditions=Conditions(join_late=0.2, join_round=4, leave=0.2, leave_round=9)),
    "rarely evaluated": Plan(ROUNDS, participation=0.4, evaluate_every=3),
}
QUICK = {
    "participation": [
        "fedavg",
        "fedgnn",
        "fediih",
        "fedpub",
        "fedsageplus",
        "fedsheafhn",
        "fedssa",
        "quilt",
        "scaffold",
    ],
    "drop-outs": ["fediih", "feddyn", "fedgta"],
    "coming and going": ["pfedgraph", "gcfl"],
    "rarely evaluated": ["adafgl"],
}
# Where dropout leaves a small client next to nothing of a factor, rounding decides the direction of what is left.
STEADY: dict[tuple[str, str], dict[str, Any]] = {("fediih", "drop-outs"): {"dropout": 0.0}}
OTHERS = [
    pytest.param(name, condition, marks=pytest.mark.long)
    for condition, quick in QUICK.items()
    for name, method in methods().items()
    if not method.single_round and not method.pools_graphs and name not in quick
]


@pytest.mark.parametrize(("name", "condition"), [(n, c) for c, names in QUICK.items() for n in names] + OTHERS)
def test_captured_rounds_of_some_are_those_of_the_participants_alone(name: str, condition: str) -> None:
    plan = CONDITIONS[condition]
    settings = STEADY.get((name, condition), {})
    alone, block = begin(name, plan, **settings), captured(begin(name, plan, **settings))
    alone.run()
    block.run()
    assert graphs_of(block).replayed >= 2
    assert_same_results(block, alone)


def test_pruned_entries_are_not_sent_back_to_those_who_sent() -> None:
    """FED-PUB's receivers that sent get what they did not prune; the others get everything."""
    settings = {"threshold": 0.5, "l1": 5.0}
    alone, block = (begin("fedpub", CONDITIONS["participation"], **settings) for _ in range(2))
    captured(block)
    alone.run()
    block.run()
    assert len({record["bytes_down"]["model.conv1.weight"] for record in alone.records[1:]}) > 3
    assert_same_results(block, alone)


def test_a_capture_that_fails_goes_on_with_the_participants_alone() -> None:
    block, alone = (begin("fedpub", CONDITIONS["participation"]) for _ in range(2))
    captured(block, Eager)
    block.advance(2)
    alone.advance(2)
    assert block.runner.seats is not None
    graphs_of(block).failure = "a look at the numbers"
    block.advance(3)
    alone.advance(3)
    assert block.runner.seats is None
    assert_same_results(block, alone)


@pytest.mark.parametrize(
    ("share", "conditions", "whether"),
    [
        (LEAST_SHARE, Conditions(), True),
        (LEAST_SHARE / 2, Conditions(), False),
        (1.0, Conditions(drop_out=0.1, leave=0.2), True),
        (1.0, Conditions(stragglers=0.1), False),
        (0.5, Conditions(upload_delay=1), False),
    ],
)
def test_what_can_be_captured(share: float, conditions: Conditions, whether: bool) -> None:
    assert can_be_captured(Attendance(0, 10, share, conditions, lambda round: 1)) is whether


def test_rows_of_a_download_go_to_the_participants() -> None:
    attendance = Attendance(0, 6, 0.5, Conditions(), lambda round: 1)
    seats = DeviceAttendance(attendance, torch.device("cpu"), torch.device("cpu"))
    memory = set()
    for round in range(5):
        seats.set(round)
        memory.add((seats.participants.data_ptr(), seats.senders.data_ptr(), seats.receivers.data_ptr()))
        here = attendance.at(round).participants
        assert seats.at_work.nonzero().ravel().tolist() == here.tolist() == seats.participants.tolist()
        assert seats.receivers.tolist() == attendance.at(round + 1).participants.tolist()
        rows, common = torch.rand(3, 2), torch.rand(4)
        down = seats.for_everyone({"own": Sparse(rows), "common": common}, [TensorSpec("common", ".", shared=True)])
        assert isinstance(down["own"], Sparse)
        assert torch.equal(down["own"].tensor[here], rows)
        assert not down["own"].tensor[~seats.at_work].any()
        assert down["common"] is common
    assert len(memory) == 1
