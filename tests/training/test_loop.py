"""The round loop: which round is reported, who takes part, undefined metrics, and findings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.errors import FedquiltError
from fedquilt.graphs.split import NONE, TEST, VAL
from fedquilt.methods.base import Method, State
from fedquilt.methods.fedavg import FedAvg
from fedquilt.runs.folder import SeedFolder
from fedquilt.tasks.node_classification import NodeClassification
from fedquilt.training.attendance import Conditions
from fedquilt.training.client_sampling import participants
from fedquilt.training.engines.base import Evaluation
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from fedquilt.training.progress import Progress
from support.federations import (
    assert_same,
    make_method,
    make_task,
    make_training,
    ragged_clients,
)

ROUNDS = 6


ACCURACY = NodeClassification.metrics["accuracy"]


class Scripted:
    """An engine that trains nothing and reports what it is told, round by round."""

    device, supports_cuda_graphs, senders, clients_are_private = torch.device("cpu"), False, None, False
    timings: ClassVar[dict[str, float]] = {}
    reported: ClassVar[dict[str, float]] = {}

    def __init__(self, val: list[float], test: list[float], clients: int = 2) -> None:
        self.val, self.test, self.clients, self.now, self.asked = val, test, clients, -1, []

    def _report(self) -> Evaluation:
        nan = torch.full((self.clients,), math.nan)
        val, test = (torch.full((self.clients,), v[self.now]) for v in (self.val, self.test))
        return Evaluation(nan, nan, val, test, torch.ones(self.clients))

    def evaluate(self) -> Evaluation:
        return Evaluation(*torch.zeros(4, self.clients), torch.ones(self.clients))

    def round(self, round: int, participants: Tensor, down: dict, evaluate: bool) -> tuple[dict, Evaluation | None]:
        self.now = round
        self.asked.append(evaluate)
        return {}, self._report() if evaluate else None

    def personal(self) -> dict[str, Tensor]:
        return {"round": torch.full((self.clients, 1), float(self.now))}

    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, state: dict[str, Tensor]) -> None: ...


def scripted(val: list[float], test: list[float], **plan: Any) -> tuple[Training, Progress]:
    clients = ragged_clients((9, 9))
    training = Training(make_method("local", clients), Scripted(val, test), Plan(len(val), **plan))
    return training, training.run()


# -- which round is reported -------------------------------------------------------------------------


def test_the_test_metric_is_that_of_the_best_validation_round() -> None:
    training, progress = scripted([0.5, 0.75, 0.5, 0.25], [0.5, 0.25, 0.875, 1.0])
    best = progress.best
    assert (best.round, best.val, best.test) == (1, 75.0, 25.0)  # never the largest test, 100
    assert best.clients_test == [25.0, 25.0]
    assert best.models["round"].tolist() == [[1.0], [1.0]]
    assert [record["test"] for record in training.records] == [50.0, 25.0, 87.5, 100.0]


def test_of_equal_rounds_the_first_is_kept() -> None:
    _, progress = scripted([0.5, 0.75, 0.75], [0.0, 0.25, 1.0])
    assert (progress.best.round, progress.best.test) == (1, 25.0)


@pytest.mark.parametrize(("patience", "rounds"), [(None, 8), (1, 3), (2, 4), (3, 8), (5, 8)])
def test_patience(patience: int | None, rounds: int) -> None:
    """The best so far are rounds 0, 1 and 4; with patience 3 round 4 comes just in time."""
    val = [0.1, 0.3, 0.2, 0.2, 0.4, 0.1, 0.1, 0.1]
    training, progress = scripted(val, val, patience=patience)
    assert progress.next_round == len(training.records) == rounds
    assert progress.best.round == (4 if rounds == 8 else 1)


def test_the_last_round_is_always_evaluated() -> None:
    training, progress = scripted([0.1, 0.9, 0.2, 0.9, 0.3, 0.9, 0.4], [0.5] * 7, evaluate_every=3)
    assert training.engine.asked == [False, False, True, False, False, True, True]
    assert ["val" in record for record in training.records] == training.engine.asked
    assert (progress.best.round, progress.best.val) == (5, pytest.approx(90.0))


def test_evaluating_less_often_does_not_change_training() -> None:
    clients = ragged_clients()
    trainings = []
    for every in (1, 4):
        training = make_training(make_method("fedavg", clients), clients, Plan(6, 0.6, evaluate_every=every))
        training.run()
        trainings.append(training)
    assert_same(trainings[0].engine.personal(), trainings[1].engine.personal())
    for one, two in zip(*(t.records for t in trainings), strict=True):
        assert "val" not in two or one["round"] in (3, 5)
        assert one["bytes_up"] == two["bytes_up"]
    # Where both looked, participants stand the same.
    assert trainings[0].records[-1]["train_loss"] == trainings[1].records[-1]["train_loss"]


def test_the_best_models_are_those_of_the_best_round() -> None:
    clients = ragged_clients()
    training = make_training(make_method("fedavg", clients, dropout=0.8), clients, Plan(8))
    kept = []
    training.on_round = lambda record: kept.append({n: w.clone() for n, w in training.engine.personal().items()})
    progress = training.run()
    vals = [record["val"] for record in training.records]
    assert progress.best.round == int(np.argmax(vals)) < 7
    assert_same(progress.best.models, kept[progress.best.round])


# -- who takes part ----------------------------------------------------------------------------------


def test_records_say_who_took_part() -> None:
    clients = ragged_clients()
    for share in (1.0, 0.6):
        training = make_training(make_method("fedavg", clients), clients, Plan(3, share))
        training.run()
        for r, record in enumerate(training.records):
            assert record["participants"] == ("all" if share == 1 else participants(3, r, 5, share).tolist())


def test_those_who_sit_out_count_with_the_models_they_have() -> None:
    clients = ragged_clients()
    training = make_training(make_method("local", clients), clients, Plan(1, 0.4))
    before = ACCURACY.shown(make_training(make_method("local", clients), clients, Plan(1)).engine.evaluate().val)
    training.run()
    (record,) = training.records
    for m in range(5):
        assert m in record["participants"] or record["clients"]["val"][m] == before[m]


# -- undefined metrics -------------------------------------------------------------------------------


def test_a_client_without_test_nodes_is_left_out_of_the_mean() -> None:
    clients = ragged_clients()
    clients[2].split[clients[2].split == TEST] = NONE
    training = make_training(make_method("fedavg", clients), clients, Plan(2))
    best = training.run().best
    assert best.clients_test[2] is None
    rest = [value for value in best.clients_test if value is not None]
    assert len(rest) == 4
    assert best.test == pytest.approx(np.mean(rest))


def test_auc_of_one_class_is_left_out() -> None:
    clients = ragged_clients(classes=2)
    for m, code in ((1, TEST), (3, VAL)):
        clients[m].graph.y[clients[m].split == code] = 1
    method = make_method("fedavg", clients, make_task(clients, metric="auc"))
    training = make_training(method, clients, Plan(2))
    training.run()
    for record in training.records:
        assert [m for m, v in enumerate(record["clients"]["test"]) if v is None] == [1]
        assert [m for m, v in enumerate(record["clients"]["val"]) if v is None] == [3]
        for part in ("val", "test"):
            defined = [v for v in record["clients"][part] if v is not None]
            assert record[part] == pytest.approx(np.mean(defined))


def without(clients: list[Client], code: int) -> list[Client]:
    return [Client(c.id, c.graph, np.where(c.split == code, NONE, c.split).astype(np.int8)) for c in clients]


def test_without_any_test_node_there_is_no_test_metric() -> None:
    clients = without(ragged_clients(), TEST)
    training = make_training(make_method("fedavg", clients), clients, Plan(2))
    progress = training.run()
    assert math.isnan(progress.best.test)
    assert all(record["test"] is None for record in training.records)


def test_without_any_validation_node_nothing_can_be_chosen() -> None:
    clients = without(ragged_clients(), VAL)
    training = make_training(make_method("fedavg", clients), clients, Plan(2))
    with pytest.raises(FedquiltError, match="No client has a validation node on which accuracy is defined"):
        training.run()


# -- findings ----------------------------------------------------------------------------------------


def begin(folder: Path | None, share: float = 1.0) -> Training:
    clients = ragged_clients()
    store = None if folder is None else SeedFolder(folder)
    plan = Plan(ROUNDS, share, checkpoint_seconds=-1.0)
    return make_training(make_method("fedavg", clients, make_task(clients, epochs=2)), clients, plan, store=store)


def test_findings_are_computed_once_after_the_last_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Tensor]] = []

    def findings(self: Method, server: State, clients: State) -> dict[str, Tensor]:
        asked.append({name: tensor.clone() for name, tensor in clients.items()})
        return {"bias": clients["model.classifier.bias"].requires_grad_(), "numbers": torch.arange(5)}

    monkeypatch.setattr(FedAvg, "findings", findings)
    training = begin(tmp_path, 0.6)
    training.on_round = lambda record: training.findings and pytest.fail("too early")
    training.run()
    assert len(asked) == 1
    assert_same(asked[0], training.engine.state())
    assert torch.equal(training.findings["bias"], training.engine.state()["model.classifier.bias"])
    assert not training.findings["bias"].requires_grad
    resumed = begin(tmp_path, 0.6)  # nothing is left to train
    resumed.run()
    assert len(asked) == 2
    assert_same(resumed.findings, training.findings)


def test_a_method_without_findings_costs_no_copy_of_the_states(monkeypatch: pytest.MonkeyPatch) -> None:
    training = begin(None)
    monkeypatch.setattr(training.engine, "state", lambda: pytest.fail("copied"))
    training.run()
    assert training.findings == {}


@pytest.mark.parametrize("name", ["fedavg", "adafgl"])
def test_who_trained_since_the_last_evaluation_is_evaluated_though_it_sits_out(name: str) -> None:
    """So that the metrics of a round are those of the models that clients have then, which are the ones that are kept."""
    clients = ragged_clients()
    method = make_method(name, clients, make_task(clients, rounds=6))
    training = make_training(method, clients, Plan(6, 0.4, evaluate_every=3))
    for record in range(training.plan.rounds):
        training.advance(1)
        found = training.records[-1]
        if "clients" in found:
            now = training.engine.evaluate()
            assert found["clients"]["test"] == pytest.approx(ACCURACY.shown(now.test), abs=1e-4), record
            assert found["val_loss"] == pytest.approx(float(now.val_loss.double().nanmean()), abs=1e-6)


def test_rounds_before_everyone_joined_are_never_the_best() -> None:
    clients = ragged_clients()
    method = make_method("fedavg", clients)
    plan = Plan(6, patience=1, conditions=Conditions(join_late=0.2, join_round=3))
    training = make_training(method, clients, plan)
    progress = training.run()
    assert progress.best.round >= 3
    assert progress.next_round > 3  # nor does patience count them
    assert None not in progress.best.clients_test
    assert training.records[0]["clients"]["val"].count(None) == 1
