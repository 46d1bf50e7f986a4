"""Adding a task is one file. This one adds a regression: the logarithm of a node's degree, by mean squared error.

Its metrics are an error, where less is better, and the share of variance explained. Nothing else is edited: a run learns it by
its name with every method that needs no classes, and the others are refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import fedquilt
from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.runs.config import RunConfig
from fedquilt.runs.progress import SeedProgress
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.studies.selection import _higher_is_better
from fedquilt.tasks.base import TASKS, Task, register_task
from fedquilt.tasks.metric import Metric, Part
from fedquilt.tasks.node_classification import NodeClassification

NAME = "degree-regression"


def target(cohort: Cohort) -> Tensor:
    """[R] log(1 + degree)."""
    degrees = [np.bincount(client.graph.edges.ravel(), minlength=client.graph.nodes) for client in cohort.members]
    return cohort.rows_of([torch.from_numpy(np.log1p(each)).float() for each in degrees], 0.0)


def squared_error(cohort: Cohort, outputs: Tensor, part: Part) -> Tensor:
    rows: Tensor = getattr(cohort, part)
    return cohort.mean_over((outputs[rows, 0] - target(cohort)[rows]).square(), rows)


def explained(cohort: Cohort, outputs: Tensor, part: Part) -> Tensor:
    rows: Tensor = getattr(cohort, part)
    y = target(cohort)[rows]
    centre = cohort.mean_over(y, rows)[cohort.client[rows]]
    return 1.0 - squared_error(cohort, outputs, part) / cohort.mean_over((y - centre).square(), rows)


class DegreeRegression(Task):
    title = "the logarithm of every node's degree"
    metrics = {  # noqa: RUF012
        "mse": Metric("mse", "MSE", squared_error, higher_is_better=False, scale=1.0, high=math.inf),
        "r2": Metric("r2", "R2", explained, scale=1.0, low=-math.inf),
    }

    def outputs(self, graph: Graph) -> int:
        return 1

    def example_client(self, features: int, outputs: int) -> Client:
        return NodeClassification().example_client(features, 1)

    def training_loss(self, cohort: Cohort, outputs: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        each = (outputs[cohort.training.real, 0] - target(cohort)[cohort.train]).square()
        return (each * cohort.train_weight).sum(), cohort.mean_over(each.detach(), cohort.train)

    def losses(self, cohort: Cohort, outputs: Tensor, part: Part) -> Tensor:
        return squared_error(cohort, outputs, part)

    def evaluated_rows(self, cohort: Cohort) -> Sequence[Tensor]:
        return cohort.val, cohort.test

    def predict(self, outputs: Tensor) -> Tensor:
        return outputs

    def prediction_rows(
        self, ids: Sequence[object], predictions: np.ndarray, names: tuple[str, ...] | None
    ) -> Iterator[list[str]]:
        yield ["id", "value"]
        for node, value in zip(ids, predictions[:, 0], strict=True):
            yield [str(node), f"{value:.6g}"]


@pytest.fixture(autouse=True, scope="module")
def added() -> Iterator[None]:
    from fedquilt.tasks import base

    register_task(NAME)(DegreeRegression)
    yield
    base.TASKS.remove(NAME)


@pytest.mark.parametrize("method", ["local", "fedavg", "fedper", "fedpub", "fediih", "fedhero", "fedsheafhn", "quilt"])
def test_methods_learn_a_task_that_they_do_not_know(method: str) -> None:
    run = fedquilt.run(method, "patchwork", task=NAME, rounds=12, settings={"lr": 0.01})
    assert run.result["metric"] == "mse"
    (records,) = run.records.values()
    errors = [record["val"] for record in records]
    graph = fedquilt.load_graph("patchwork")[0]
    untrained = np.square(np.log1p(np.bincount(graph.edges.ravel()))).mean()  # the error of an output of zero
    assert min(errors) < 0.2 * untrained  # in the units of the target, not in percent
    (seed,) = run.result["seeds"]
    assert seed["val"] == min(errors)  # less is better
    assert seed["best_round"] == errors.index(min(errors))


def test_another_metric_of_the_task_chooses_the_best_round_by_its_own_direction() -> None:
    run = fedquilt.run("fedavg", "patchwork", task=NAME, metric="r2", rounds=12)
    (records,) = run.records.values()
    assert run.result["seeds"][0]["val"] == max(record["val"] for record in records)


@pytest.mark.parametrize("method", ["majority", "fedssa", "fedproto"])
def test_methods_that_need_classes_are_refused_with_a_sentence(method: str) -> None:
    with pytest.raises(FedquiltError, match=f"Method '{method}' needs classes, which the task {NAME} has not"):
        fedquilt.run(method, "patchwork", task=NAME, rounds=1)


def test_a_metric_of_another_task_is_refused() -> None:
    with pytest.raises(FedquiltError, match="There is no metric 'accuracy'; choose one of: mse, r2"):
        fedquilt.run("fedavg", "patchwork", task=NAME, metric="accuracy", rounds=1)


def test_a_run_of_the_task_is_kept_resumed_and_loaded(tmp_path: object) -> None:
    folder = f"{tmp_path}/run"
    run = fedquilt.run("fedavg", "patchwork", task=NAME, rounds=3, out=folder, checkpoint_seconds=0)
    loaded = fedquilt.load_run(folder)
    assert loaded.result == run.result
    assert fedquilt.resume(folder).result == run.result
    assert loaded.facts[0]["task"]["task"] == NAME


class HidesEdges(DegreeRegression):
    """Keeps every fifth edge out of the clients' graphs, as a task that predicts edges does."""

    def client(self, number: int, graph: Graph, split: np.ndarray, seed: int) -> Client:
        hidden = np.arange(graph.edges.shape[1]) % 5 == seed % 5
        return Client(number, graph.some_edges(~hidden), split, {"edges": graph.edges[:, hidden]})


def test_a_task_can_keep_edges_out_of_every_clients_graph() -> None:
    register_task("hides-edges")(HidesEdges)
    try:
        config = {"method": "fedavg", "dataset": "patchwork", "rounds": 2}
        whole, seen = (ResolvedRun(RunConfig.build(config | {"task": task})) for task in (NAME, "hides-edges"))
        for client, other in zip(seen.clients(0), whole.clients(0), strict=True):
            together = np.concatenate([client.graph.edges, client.held_out["edges"]], axis=1)
            assert {tuple(edge) for edge in together.T} == {tuple(edge) for edge in other.graph.edges.T}
            assert client.held_out["edges"].shape[1] == -(-other.graph.edges.shape[1] // 5)
        assert fedquilt.run(**config, task="hides-edges").result["test_mean"] is not None
    finally:
        TASKS.remove("hides-edges")


def test_a_search_makes_an_error_small(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    from fedquilt.tuning import tune

    options = {"task": NAME, "rounds": 3, "trials": 4, "space": {"lr": [1e-4, 0.01]}, "into": tmp_path / "search"}
    tuned = tune("fedavg", "patchwork", **options)
    vals = [trial.val for trial in tuned.trials if trial.val is not None]
    assert tuned.best_val == tuned.best.val == min(vals) < max(vals)
    assert tuned.best_settings["lr"] == 0.01  # in three rounds 1e-4 learns nothing
    assert f"{min(vals):.2f}" in (tmp_path / "search" / "best.yaml").read_text()


def test_the_progress_of_a_run_and_the_choice_of_a_study_follow_the_direction() -> None:
    progress = SeedProgress("fedavg", 0, 0, 3, higher_is_better=False)
    for round, val in enumerate([2.0, 1.0, 3.0]):
        progress.add({"round": round, "seconds": 0.1, "val": val})
    assert (progress.best, progress.best_round) == (1.0, 1)
    assert not _higher_is_better(RunConfig.build({"task": NAME}))
    assert not _higher_is_better(RunConfig.build({"task": NAME, "metric": "mse"}))
    assert _higher_is_better(RunConfig.build({"task": NAME, "metric": "r2"}))
    assert _higher_is_better(RunConfig())
