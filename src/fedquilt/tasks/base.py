"""The interface of a task: a model's outputs, the loss that clients minimise, and the metrics. A task is one file.

A run carries one task. Models ask it for their output width, methods for the loss of a training step, engines for metrics, the
coordinator for a made-up client, `predict` for the table it writes. Nothing else knows what is learned.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.client import Client, clients_of
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws
from fedquilt.common.registry import Registry
from fedquilt.devices.device import on_host
from fedquilt.errors import FedquiltError, unknown
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import NONE, TEST, Split
from fedquilt.partition.partition import Partition
from fedquilt.tasks import NODE_CLASSIFICATION
from fedquilt.tasks.class_weights import NONE as NO_WEIGHTS
from fedquilt.tasks.metric import Metric, Part, rows_of
from fedquilt.tasks.settings import NoTaskSettings, read_task_settings


class Task(ABC):
    """A task. Subclass, fill in the class attributes and the abstract methods, and decorate with `@register_task`.

    Attributes:
        name: as options and files have it. title: one line for help texts.
        metrics: by name; the first is used where nothing else is asked for.
        has_classes: whether nodes have classes. Methods that need classes are refused where they do not.
        Settings: what can be set of it, a frozen dataclass; `settings` has the values.
        splits_edges: each client's edges are split, not the nodes of the whole graph. `Settings` then has a `split`, and the
            run's option of that name is meant for it.
        needs_labels: whether some node has to have a label.
        compute_version: raise it with a change that gives its runs other numbers (`fedquilt.runs.compute_version`).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    metrics: Mapping[str, Metric]
    has_classes: ClassVar[bool] = False
    Settings: ClassVar[type] = NoTaskSettings
    splits_edges: ClassVar[bool] = False
    needs_labels: ClassVar[bool] = True
    compute_version: ClassVar[int] = 1

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.settings: Any = read_task_settings(self.name, self.Settings, settings or {})

    def metric(self, name: str) -> Metric:
        """The metric called `name`, or an error that lists the task's metrics."""
        if name not in self.metrics:
            raise FedquiltError(f"There is no metric '{name}'; choose one of: {', '.join(self.metrics)}.")
        return self.metrics[name]

    # -- data --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def outputs(self, graph: Graph) -> int:
        """Width of a model's output for this graph; refused where its labels are not what the task learns."""

    def outputs_of_site(self, site: str, classes: int, named: bool) -> int:
        """The same from what a site says, whose graph is not seen: how many classes it has, and whether they have names."""
        return classes

    def check(self, whose: str, outputs: int, metric: str) -> None:
        """Refuse a metric that is not defined for so many outputs; `whose` begins the sentence, as in "Cora has"."""
        return

    def check_same(self, graph: Graph, outputs: int, output_names: tuple[str, ...] | None) -> None:
        """Refuse a graph whose outputs are not those of a trained model: so many, with these names where they have names."""
        return

    def draw_split(self, split: Split, graph: Graph, seed: int, attempt: int = 0) -> np.ndarray:
        """[N] int8 of TRAIN, VAL, TEST or NONE: the part of each node of the whole graph, before it is partitioned."""
        return split.draw(graph, seed, attempt)

    def clients(self, graph: Graph, partition: Partition, split: np.ndarray, seed: int) -> list[Client]:
        """The clients of a partition: each with its nodes, the edges among them, and its part of the split."""
        return [self.client(c.id, c.graph, c.split, seed) for c in clients_of(graph, partition, split)]

    def client(self, number: int, graph: Graph, split: np.ndarray, seed: int) -> Client:
        """One owner's graph as a client: of a partition, a site, or a newcomer.

        Training computes outputs at its nodes that are TRAIN. A task that predicts edges takes some out of the graph here and
        keeps them in `Client.held_out`.
        """
        return Client(number, graph, split)

    def seen(self, cohort: Cohort, part: Part | None) -> Cohort:
        """The cohort whose edges models read where a part is evaluated, or, for None, where they are used.

        It has the same rows. By default it is the one that they train on.
        """
        return cohort

    def without_test(self, client: Client) -> Client:
        """The client without anything that a test metric could be computed from, for a search on validation alone."""
        test = client.split == TEST
        graph = replace(client.graph, y=np.where(test, -1, client.graph.y))
        return replace(client, graph=graph, split=np.where(test, NONE, client.split))

    @abstractmethod
    def example_client(self, features: int, outputs: int) -> Client:
        """A small made-up client with every kind of output among its training nodes: its messages show all shapes."""

    def holdings(self, graph: Graph, partition: Partition) -> dict[str, np.ndarray]:
        """Statistics of each client's targets, as arrays with a row a client; saved with the partition."""
        return {}

    # -- learning ----------------------------------------------------------------------------------------------------

    def weighted(self, class_weights: str, outputs: int) -> Task:
        """This task with classes weighted in its training loss (`fedquilt.tasks.class_weights`); refused without classes."""
        if class_weights != NO_WEIGHTS:
            raise FedquiltError(f"The task {self.name} has no classes to weight; leave class_weights out.")
        return self

    @abstractmethod
    def training_loss(self, cohort: Cohort, outputs: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """The loss of a training step: the sum of the clients' own means (to differentiate), and each mean [M].

        Args:
            cohort: the clients.
            outputs: [T, C], the rows of `cohort.training`.
            draws: the step's random numbers, for tasks that sample.
        """

    @abstractmethod
    def losses(self, cohort: Cohort, outputs: Tensor, part: Part) -> Tensor:
        """Each client's mean loss on a part, without dropout: outputs [R, C] -> [M]; NaN where it has nothing there."""

    def confusion(self, cohort: Cohort, outputs: Tensor, part: Part) -> Tensor | None:
        """Each client's counts by true and by predicted class, [M, C, C] int64; None where there are no classes."""
        return None

    def rows_of(self, cohort: Cohort, part: Part) -> Tensor:
        """The rows whose outputs metrics of a part read: [T] int64."""
        return rows_of(cohort, part)

    def evaluated_rows(self, cohort: Cohort) -> Sequence[Tensor]:
        """Those of validation and test: outputs that are not finite there make a client's metrics meaningless."""
        return self.rows_of(cohort, "val"), self.rows_of(cohort, "test")

    def counts(self, cohort: Cohort, part: Part) -> Tensor:
        """How much each client's metrics of a part are over, such as nodes: [M] float32."""
        return cohort.counts(self.rows_of(cohort, part))

    def finite(self, cohort: Cohort, outputs: Tensor, rows: Sequence[Tensor] | None = None) -> Tensor:
        """[M] 1 where all outputs of a client at the evaluated rows (or `rows`) are finite, else 0: outputs [R, C]."""
        if on_host(outputs) and math.isfinite(float(outputs.sum())):  # then all of them are, which is the usual case
            return torch.ones(cohort.clients)
        wrong = (~torch.isfinite(outputs).all(1)).float()
        chosen = self.evaluated_rows(cohort) if rows is None else rows
        return 1.0 - torch.stack([cohort.sum_over(wrong[some], some) for some in chosen]).sum(0).clamp_max(1.0)

    def mixture(self, outputs: Sequence[Tensor], weights: Tensor, owner: Tensor) -> Tensor:
        """The outputs of a mixture of models: by default the weighted sum of theirs.

        Args:
            outputs: [T, C] of each of V models. weights: [M, V], each client's of the models; they sum to one.
            owner: [T] int64, whose row it is.
        """
        return torch.stack([o * w[owner].unsqueeze(1) for o, w in zip(outputs, weights.unbind(1), strict=True)]).sum(0)

    # -- prediction --------------------------------------------------------------------------------------------------

    def constants(self) -> Mapping[str, Callable[[Client], float]]:
        """Numbers of a client's training data that its predictions need, by name; see `Method.constants`."""
        return {}

    def in_units(self, cohort: Cohort, outputs: Tensor) -> Tensor:
        """A model's outputs at a cohort's rows in the units of the labels, for a task that learns in others: [R, C]."""
        return outputs

    def known_labels(self, graph: Graph, names: tuple[str, ...]) -> np.ndarray | None:
        """[n] the true labels to write beside predictions, which have these names; None: none are written."""
        return None

    @abstractmethod
    def predict(self, outputs: Tensor) -> Tensor:
        """Predictions from outputs, such as probabilities: [n, C] -> [n, C']."""

    def prediction_warnings(self, graph: Graph, outputs: int, names: tuple[str, ...] | None) -> Iterator[str]:
        """A sentence for each thing about a graph that makes predictions for it questionable; the model has these outputs."""
        yield from ()

    def pair_probabilities(self, outputs: Tensor, pairs: Tensor) -> Tensor:
        """The probabilities of edges between pairs of nodes, of a task that predicts them: [n, C], [2, P] -> [P]."""
        raise FedquiltError(f"The task {self.name} predicts nodes, not pairs of them; leave the pairs out.")

    @abstractmethod
    def prediction_rows(
        self, ids: Sequence[object], predictions: np.ndarray, names: tuple[str, ...] | None
    ) -> Iterator[list[str]]:
        """The table that `predict` writes: its header, then a row a node; `names` are those of the outputs."""

    def prediction_columns(
        self, ids: np.ndarray, predictions: np.ndarray, names: tuple[str, ...] | None
    ) -> dict[str, np.ndarray]:
        """The columns of that table after the first, by name; text unless a task says that they are numbers."""
        header, *rows = self.prediction_rows(ids.tolist(), predictions, names)
        return {name: np.array([row[place] for row in rows]) for place, name in enumerate(header) if place > 0}


TASKS: Registry[type[Task]] = Registry("task", "fedquilt.tasks")
_T = TypeVar("_T", bound=type[Task])


def register_task(name: str) -> Callable[[_T], _T]:
    """Make a task known by `name`."""

    def decorate(cls: _T) -> _T:
        TASKS.add(name, cls)
        cls.name = name
        return cls

    return decorate


def find_task(name: str, settings: Mapping[str, Any] | None = None) -> Task:
    """The task called `name` with these settings, or an error with the nearest right name."""
    return TASKS.find(name)(settings)


def find_metric(name: str) -> Metric:
    """The metric called `name`, of whichever task has it: for tables of runs, which name only the metric."""
    tasks = sorted(
        TASKS.all().values(), key=lambda task: task.name == NODE_CLASSIFICATION
    )  # its own come last, and count
    known = {metric.name: metric for task in tasks for metric in task.metrics.values()}
    if name not in known:
        raise unknown("metric", name, known)
    return known[name]
