"""Adding an engine is one file. This one runs clients one after the other, each as a cohort of one, as real sites do.

Nothing else is edited: a run trains on it, resumes from it and admits newcomers with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedquilt
from fedquilt.cohort.client import Client
from fedquilt.messages.message import Message
from fedquilt.messages.slicing import join_messages, slice_message
from fedquilt.methods.base import Method, State, methods
from fedquilt.runs.folder import SeedFolder
from fedquilt.scenarios.newcomers import FrozenServer
from fedquilt.training.engines import registry
from fedquilt.training.engines.base import EVALUATION_FIELDS, Engine, Evaluation
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.engines.registry import EngineOptions, make_engine, register_engine
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.federations import assert_same_training, make_method, ragged_clients, without_seconds
from support.newcomers import NAME as ADMITTING
from support.newcomers import keeping

NAME = "one_by_one"
CPU = torch.device("cpu")


class OneByOne:
    """Every client has an engine of its own."""

    supports_cuda_graphs = False
    clients_are_private = False
    senders: Tensor | None = None
    timings: dict[str, float] = {}  # noqa: RUF012
    reported: dict[str, float] = {}  # noqa: RUF012

    def __init__(self, method: Method, clients: Sequence[Client], device: torch.device) -> None:
        self.method, self.device = method, device
        self.engines = {client.id: InProcess(method, [client], device) for client in clients}

    def round(
        self, round: int, participants: Tensor, down: Message, evaluate: bool
    ) -> tuple[Message, Evaluation | None]:
        uploads = []
        for place, m in enumerate(participants.tolist()):
            own = slice_message(down, self.method.downloads, place, place + 1)
            uploads.append(self.engines[m].round(round, torch.tensor([m]), own, evaluate)[0])
        return join_messages(uploads), self._joined() if evaluate else None

    def settle(self, down: Message) -> Evaluation:
        for place, engine in enumerate(self.engines.values()):
            engine.settle(slice_message(down, self.method.downloads, place, place + 1))
        return self._joined()

    def evaluate(self) -> Evaluation:
        for engine in self.engines.values():
            engine.evaluate()
        return self._joined()

    def _joined(self) -> Evaluation:
        each = self.engines.values()
        return Evaluation(*(torch.cat([one.metrics[name] for one in each]) for name in EVALUATION_FIELDS))

    def predictions(self) -> list[Tensor]:
        return [prediction for engine in self.engines.values() for prediction in engine.predictions()]

    def personal(self) -> State:
        return _stacked([engine.personal() for engine in self.engines.values()])

    def forget(self) -> None:
        for engine in self.engines.values():
            engine.forget()

    def state(self) -> State:
        return _stacked([engine.state() for engine in self.engines.values()])

    def restore(self, state: State) -> None:
        for place, engine in enumerate(self.engines.values()):
            engine.restore({name: tensor[place : place + 1] for name, tensor in state.items()})


def _stacked(states: Sequence[State]) -> State:
    return {name: torch.cat([state[name] for state in states]) for name in states[0]}


def make_one_by_one(method: Method, clients: Sequence[Client], options: EngineOptions) -> Engine:
    return OneByOne(method, clients, options.device)


@pytest.fixture(autouse=True, scope="module")
def added() -> Iterator[None]:
    register_engine(NAME)(make_one_by_one)
    yield
    del registry._FACTORIES[NAME]


def training(method: str, engine: str | None, plan: Plan, **options: Any) -> Training:
    clients = ragged_clients()
    made = make_method(method, clients)
    return Training(made, make_engine(made, clients, EngineOptions(CPU, cohort_size=1), engine), plan, **options)


@pytest.mark.parametrize("method", methods())
def test_every_method_trains_as_in_process(method: str) -> None:
    plan = Plan(2, participation=0.6)
    mine, other = (training(method, engine, plan) for engine in (NAME, None))
    mine.run()
    other.run()
    assert_same_training(mine, other)
    for one, two in zip(mine.engine.predictions(), other.engine.predictions(), strict=True):
        assert torch.equal(one, two)


def test_a_training_that_began_in_process_resumes_on_it(tmp_path: Path) -> None:
    plan = Plan(4, checkpoint_seconds=-1.0)
    whole = training("fedpub", None, plan)
    whole.run()
    training("fedpub", None, plan, store=SeedFolder(tmp_path)).advance(2)
    resumed = training("fedpub", NAME, plan, store=SeedFolder(tmp_path))
    resumed.run()
    assert_same_training(resumed, whole)


def test_a_run_uses_it_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"clients": 5, "rounds": 3, "device": "cpu", "settings": {"hidden": 8}, "cohort_size": 1}
    expected = fedquilt.run("fedavg", **options)
    monkeypatch.setattr(EngineOptions, "engine", NAME)
    run = fedquilt.run("fedavg", **options)
    assert without_seconds(run.records[0]) == without_seconds(expected.records[0])


def test_newcomers_are_admitted_with_it() -> None:
    clients = ragged_clients()
    with keeping():
        method = make_method(ADMITTING, clients[:3])
        trained = Training(method, InProcess(method, clients[:3]), Plan(2))
        trained.run()
        server = FrozenServer(method, method.newcomer_state(trained.server), CPU, "40/30/30", False, None)
        mine = server.admit(clients[3:], engine_factory=make_one_by_one)
        other = server.admit(clients[3:], cohort_size=1)
    assert (mine.val, mine.test, mine.bytes_up, mine.bytes_down) == (
        other.val,
        other.test,
        other.bytes_up,
        other.bytes_down,
    )
    for name, model in mine.models.items():
        assert torch.equal(model, other.models[name])
