"""Methods in phases: which rounds are trained and evaluated, what crosses in each, and a resumption within one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.federation.message_checks import ExpectedMessages
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.base import Phase, State, Update
from fedquilt.methods.fedavg import FedAvg
from fedquilt.runs.folder import SeedFolder
from fedquilt.training.memory_estimate import client_memory
from fedquilt.training.plan import Plan
from support.federations import assert_same, make_method, make_training, ragged_clients, registered

ROUNDS, SCOUTING = 3, 2
HUNGER = 200_000  # numbers a client


class Scouts(FedAvg):
    """Counts edges for two rounds, which nobody evaluates, and trains from then on as FedAvg."""

    title, paper = "Scouts", "made up"
    uploads = (*FedAvg.uploads, TensorSpec("edges", "How many edges the client has.", count=True))
    downloads = (*FedAvg.downloads, TensorSpec("mean_edges", "The mean over clients.", shared=True))

    def phases(self, rounds: int) -> tuple[Phase, ...]:
        return Phase("scouting", SCOUTING, evaluated=False), Phase("training", rounds)

    def private(self, weights: State) -> State:
        return {"heard": weights["classifier.bias"].new_zeros(len(weights["classifier.bias"]))}

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        if "mean_edges" in down:
            state["heard"].copy_(dense(down["mean_edges"]).expand(cohort.clients))
        if self.phase(round)[0].name == "training":
            return super().local_update(state, cohort, down, round)
        edges = torch.tensor([float(client.graph.edges.shape[1]) for client in cohort.members])
        return Update({"edges": edges}, self.personal(state), torch.zeros(cohort.clients))

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        if "edges" in uploads:
            return {"mean_edges": dense(uploads["edges"]).mean()}
        return super().aggregate(server, uploads, senders, receivers)


@pytest.fixture(autouse=True)
def scouts() -> Iterator[None]:
    with registered(Scouts, "scouts"):
        yield


def test_all_phases_are_trained_and_only_evaluated_ones_can_be_best() -> None:
    clients = ragged_clients()
    training = make_training(make_method("scouts", clients), clients, Plan(ROUNDS))
    training.run()
    assert [record["phase"] for record in training.records] == ["scouting"] * SCOUTING + ["training"] * ROUNDS
    assert ["val" in record for record in training.records] == [False] * SCOUTING + [True] * ROUNDS
    assert training.progress.best.round >= SCOUTING
    assert [set(record["bytes_up"]) == {"edges"} for record in training.records] == [True] * SCOUTING + [False] * ROUNDS
    mean = sum(client.graph.edges.shape[1] for client in clients) / len(clients)
    assert training.engine.state()["heard"].tolist() == pytest.approx([mean] * len(clients))


def test_a_phase_that_says_it_sends_nothing_may_not_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = ragged_clients()
    phases = (Phase("scouting", SCOUTING, evaluated=False, sends=False), Phase("training", ROUNDS))
    monkeypatch.setattr(Scouts, "phases", lambda self, rounds: phases)
    method = make_method("scouts", clients)
    assert [method.sends_in(round) for round in range(SCOUTING + 1)] == [False] * SCOUTING + [True]
    with pytest.raises(RuntimeError, match="scouts uploads in a phase that says it sends nothing"):
        make_training(method, clients, Plan(ROUNDS)).run()


def test_the_rounds_of_a_phase_are_those_of_the_method_alone() -> None:
    """After the scouting, which changes no weight, the training is FedAvg's but for the numbers of its steps."""
    clients = ragged_clients()
    there = make_training(make_method("scouts", clients, dropout=0.0), clients, Plan(ROUNDS))
    alone = make_training(make_method("fedavg", clients, dropout=0.0), clients, Plan(ROUNDS))
    there.run()
    alone.run()
    assert_same(there.progress.best.models, alone.progress.best.models)


@pytest.mark.parametrize("after", [1, SCOUTING, SCOUTING + 1])
def test_a_training_is_resumed_in_any_phase(tmp_path: Path, after: int) -> None:
    clients = ragged_clients()
    whole = make_training(make_method("scouts", clients), clients, Plan(ROUNDS))
    whole.run()
    cut = make_training(make_method("scouts", clients), clients, Plan(ROUNDS), store=SeedFolder(tmp_path))
    cut.advance(after)
    cut.save()
    resumed = make_training(make_method("scouts", clients), clients, Plan(ROUNDS), store=SeedFolder(tmp_path))
    resumed.run()
    assert_same(resumed.progress.best.models, whole.progress.best.models)
    assert resumed.progress.next_round == SCOUTING + ROUNDS


def test_what_crosses_is_known_for_every_phase() -> None:
    expected = ExpectedMessages(make_method("scouts", ragged_clients()))
    assert set(expected.downloads) == {"mean_edges", *(f"model.{name}" for name in expected.method.personal_shapes())}
    assert {"edges", "train_nodes", "model.conv1.weight"} <= set(expected.upload_names)


def test_rounds_of_different_phases_do_not_share_a_cuda_graph() -> None:
    method = make_method("scouts", ragged_clients())
    keys = [method.round_key(round) for round in range(SCOUTING + ROUNDS)]
    assert len(set(keys)) == 4  # the first round of each phase has its own
    assert keys[-1] == keys[-2] != keys[SCOUTING]


class Hungry(Scouts):
    """Takes more memory in the second phase."""

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        if self.phase(round)[0].name == "training":
            torch.ones(cohort.clients, HUNGER).sum()
        return super().local_update(state, cohort, down, round)


def test_memory_is_estimated_over_all_phases() -> None:
    clients = ragged_clients()
    with registered(Hungry, "hungry"):
        modest, hungry = (client_memory(make_method(name, clients), clients) for name in ("scouts", "hungry"))
    assert hungry.first < 0.1 * 4 * HUNGER  # which is of the first phase
    assert hungry.later > max(modest.later, 0.9 * 4 * HUNGER)
