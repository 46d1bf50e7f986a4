"""The round loop: who takes part, what is counted, which round is reported, and going on after a kill."""

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
from fedquilt.methods.base import Method, State, methods
from fedquilt.methods.fedavg import FedAvg
from fedquilt.runs.folder import SeedFolder
from fedquilt.tasks.node_classification import NodeClassification
from fedquilt.training.client_sampling import participants
from fedquilt.training.engines.base import Evaluation
from fedquilt.training.loop import Training
from fedquilt.training.plan import BEST, Plan
from fedquilt.training.progress import Progress
from fedquilt.training.round_result import mean
from support.federations import (
    Wiretap,
    assert_same,
    assert_same_training,
    make_method,
    make_task,
    make_training,
    ragged_clients,
    without_seconds,
)

ROUNDS = 6
ACCURACY = NodeClassification.metrics["accuracy"]


class Scripted:
    """An engine that trains nothing and reports what it is told, round by round."""

    device, supports_cuda_graphs, senders, clients_are_private = torch.device("cpu"), False, None, False
    phases: ClassVar[dict[str, float]] = {}
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


# -- what is counted ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "here"), [(1.0, 5), (0.6, 3)])
def test_fedavgs_bytes_by_hand(share: float, here: int) -> None:
    clients = ragged_clients()
    training = make_training(make_method("fedavg", clients), clients, Plan(4, share))
    progress = training.run()
    sizes = {
        "model.conv1.weight": 10 * 8,
        "model.conv1.bias": 8,
        "model.conv2.weight": 8 * 8,
        "model.conv2.bias": 8,
        "model.classifier.weight": 8 * 3,
        "model.classifier.bias": 3,
    }
    numbers = sum(sizes.values())
    for record in training.records:
        assert record["bytes_up"] == {n: 4 * size * here for n, size in sizes.items()} | {"train_nodes": 4 * here}
        down = {} if record["round"] == 0 else {n: 4 * size * here for n, size in sizes.items()}
        assert record["bytes_down"] == down
    assert progress.upload_bytes == 4 * here * (numbers + 1) * 4
    assert progress.download_bytes == 3 * here * numbers * 4


@pytest.mark.parametrize("name", ["fedavg", "fedper", "fedpub", "local"])
def test_the_ledger_names_what_crossed(name: str) -> None:
    clients = ragged_clients()
    training = make_training(make_method(name, clients), clients, Plan(4, 0.6))
    tap = Wiretap(training.engine)
    progress = training.run()
    for record, up, down in zip(training.records, tap.ups, tap.downs, strict=True):
        assert set(record["bytes_up"]) == set(up)
        assert set(record["bytes_down"]) == set(down)
        assert record["bytes_up"] == {key: t.numel() * t.element_size() for key, t in up.items()}
    assert progress.upload_bytes == sum(sum(r["bytes_up"].values()) for r in training.records)
    assert progress.download_bytes == sum(sum(r["bytes_down"].values()) for r in training.records)
    assert progress.seconds == pytest.approx(sum(r["seconds"] for r in training.records))


# -- undefined figures -------------------------------------------------------------------------------


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


def test_the_mean_leaves_undefined_values_out() -> None:
    values = torch.tensor([0.5, math.nan, 1.0])
    assert mean(values) == 0.75
    assert math.isnan(mean(torch.tensor([math.nan])))


# -- going on after a kill ---------------------------------------------------------------------------


class Killed(Exception):  # noqa: N818
    pass


VARIANTS: list[tuple[str, dict[str, Any], float]] = [
    ("fedavg", {}, 1.0),
    ("fedavg", {}, 0.6),
    ("fedpub", {"threshold": 0.5}, 0.6),
    ("fedpub", {"similarity": "gradient"}, 0.6),
    *((name, {}, 0.6) for name, method in methods().items() if name != "fedavg" and not method.single_round),
]


def begin(variant: tuple[str, dict[str, Any], float], folder: Path | None, cohort_size: int | None = None) -> Training:
    name, settings, share = variant
    clients = ragged_clients()
    clients[2].split[clients[2].split == TEST] = NONE  # an undefined figure has to survive as well
    place = None if folder is None else SeedFolder(folder)
    method = make_method(name, clients, make_task(clients, epochs=2), **settings)
    return make_training(method, clients, Plan(ROUNDS, share, checkpoint_seconds=-1.0), cohort_size, store=place)


def kill_after(training: Training, round: int) -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["round"] == round:
            raise Killed

    training.on_round = stop
    with pytest.raises(Killed):
        training.run()


@pytest.fixture(scope="module", params=VARIANTS, ids=str)
def whole(request: pytest.FixtureRequest) -> tuple[tuple, Training]:
    training = begin(request.param, None)
    training.run()
    if request.param[0] == "fedpub":
        assert {0, 4, BEST} <= set(training.similarities)
    return request.param, training


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_resumed_training_is_bit_identical(whole: tuple[tuple, Training], round: int, tmp_path: Path) -> None:
    variant, expected = whole
    kill_after(begin(variant, tmp_path), round)
    resumed = begin(variant, tmp_path)
    seen: list[int] = []
    resumed.on_round = lambda record: seen.append(record["round"])
    resumed.run()
    assert seen == list(range(ROUNDS))  # progress is told of the rounds before as well
    assert_same_training(resumed, expected)
    assert without_seconds(SeedFolder(tmp_path).records()) == without_seconds(expected.records)


def test_killed_again_and_again(whole: tuple[tuple, Training], tmp_path: Path) -> None:
    variant, expected = whole
    for round in range(ROUNDS - 1):
        training = begin(variant, tmp_path)
        whole_round = training.runner.run

        def stop(number: int, last: int = round, run: Any = whole_round) -> Any:
            if number > last:
                raise Killed
            return run(number)

        training.runner.run = stop  # type: ignore[method-assign]
        with pytest.raises(Killed):
            training.run()
    resumed = begin(variant, tmp_path)
    resumed.run()
    assert_same_training(resumed, expected)


@pytest.mark.parametrize("damage", ["tensors", "facts", "truncated", "missing"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    whole: tuple[tuple, Training], damage: str, tmp_path: Path
) -> None:
    variant, expected = whole
    kill_after(begin(variant, tmp_path), 3)
    newest = tmp_path / "checkpoints" / "round-000003"
    tensors, facts = newest.with_suffix(".safetensors"), newest.with_suffix(".json")
    if damage == "tensors":
        data = bytearray(tensors.read_bytes())
        data[-1] ^= 1
        tensors.write_bytes(data)
    elif damage == "truncated":
        tensors.write_bytes(tensors.read_bytes()[:-100])
    elif damage == "facts":
        facts.write_text(facts.read_text().replace('"round": 3', '"round": 4'))
    else:
        tensors.unlink()
    saved = SeedFolder(tmp_path).latest_checkpoint()
    assert saved is not None
    assert saved.round == 2
    resumed = begin(variant, tmp_path)
    resumed.run()
    assert_same_training(resumed, expected)


def test_all_checkpoints_damaged_starts_anew(whole: tuple[tuple, Training], tmp_path: Path) -> None:
    variant, expected = whole
    kill_after(begin(variant, tmp_path), 3)
    for path in (tmp_path / "checkpoints").glob("*.safetensors"):
        path.write_bytes(b"")
    resumed = begin(variant, tmp_path)
    resumed.run()
    assert_same_training(resumed, expected)
    assert without_seconds(SeedFolder(tmp_path).records()) == without_seconds(expected.records)


def test_rounds_after_the_checkpoint_are_forgotten_and_done_again(tmp_path: Path) -> None:
    variant = VARIANTS[2]
    expected = begin(variant, None)
    expected.run()
    training = begin(variant, tmp_path)
    training.checkpointer._wait = 1e9
    training.on_round = lambda record: training.save() if record["round"] == 1 else None
    training.run()
    assert len(SeedFolder(tmp_path).records()) == ROUNDS
    resumed = begin(variant, tmp_path)
    resumed.run()
    assert_same_training(resumed, expected)


def test_without_a_folder_save_does_nothing() -> None:
    training = begin(VARIANTS[0], None)
    training.save()
    training.run()
    assert len(training.records) == ROUNDS


# -- what was found ----------------------------------------------------------------------------------


def test_findings_are_computed_once_after_the_last_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Tensor]] = []

    def findings(self: Method, server: State, clients: State) -> dict[str, Tensor]:
        asked.append({name: tensor.clone() for name, tensor in clients.items()})
        return {"bias": clients["model.classifier.bias"].requires_grad_(), "numbers": torch.arange(5)}

    monkeypatch.setattr(FedAvg, "findings", findings)
    training = begin(VARIANTS[1], tmp_path)
    training.on_round = lambda record: training.findings and pytest.fail("too early")
    training.run()
    assert len(asked) == 1
    assert_same(asked[0], training.engine.state())
    assert torch.equal(training.findings["bias"], training.engine.state()["model.classifier.bias"])
    assert not training.findings["bias"].requires_grad
    resumed = begin(VARIANTS[1], tmp_path)  # nothing is left to train
    resumed.run()
    assert len(asked) == 2
    assert_same(resumed.findings, training.findings)


def test_a_method_without_findings_costs_no_copy_of_the_states(monkeypatch: pytest.MonkeyPatch) -> None:
    training = begin(VARIANTS[0], None)
    monkeypatch.setattr(training.engine, "state", lambda: pytest.fail("copied"))
    training.run()
    assert training.findings == {}
