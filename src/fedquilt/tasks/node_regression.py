"""Node regression: a number for every node, by mean squared error; measured by R2, mean absolute error and others.

Labels are standardised where they are learned: a client's model puts out z = (y - m) / s, where m and s are the mean and the
standard deviation of the client's own *training* labels. So no number of a run depends on the unit of the labels, nothing about
labels leaves a client, and validation and test labels are in no statistic. A client whose training labels are all equal has
s = |m|, or 1 where that is 0. The loss is the mean of (z' - z)^2; metrics and predictions are in the labels' own units.

Where everyone's graph is in one place (`Method.pools_graphs`), m and s are those of everyone's training labels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.label_numbers import numeric_labels, presence
from fedquilt.graphs.split import TEST, TRAIN, VAL
from fedquilt.tasks import NODE_REGRESSION
from fedquilt.tasks.base import Task, register_task
from fedquilt.tasks.metric import Metric, Part, rows_of

# The names under which a client's mean and deviation of training labels are stored with it, and saved with its model.
MEAN, DEVIATION = "mean training label", "deviation of training labels"
_LARGEST = sys.float_info.max


def label_numbers(graph: Graph) -> np.ndarray:
    """[n] float64: the labels of a graph as numbers; NaN where a node has none."""
    return numeric_labels(graph.y, graph.numbers)


def label_mean(client: Client) -> float:
    """m, the mean of a client's training labels; 0 where it has none."""
    known = _training_labels(client)
    return float(known.mean()) if known.size else 0.0


def label_deviation(client: Client) -> float:
    """s, the standard deviation of a client's training labels (over n); |m| where all are equal, 1 where that is 0 too."""
    known = _training_labels(client)
    if not known.size:
        return 1.0
    deviation = float(known.std())
    # Equal labels may differ from their mean by a rounding error.
    return deviation if deviation > 1e-12 * np.abs(known).max() else float(np.abs(known).max()) or 1.0


def _training_labels(client: Client) -> np.ndarray:
    whole = client if client.pooled is None else client.pooled.whole
    return label_numbers(whole.graph)[whole.training_nodes]


_CONSTANTS: dict[str, Callable[[Client], float]] = {MEAN: label_mean, DEVIATION: label_deviation}


def standardised(client: Client) -> np.ndarray:
    """[n] float32: z = (y - m) / s of each node; 0 where it has no label."""
    mean, deviation = (client.once(name, compute) for name, compute in _CONSTANTS.items())
    return np.nan_to_num((label_numbers(client.graph) - mean) / deviation).astype(np.float32)


def targets(cohort: Cohort) -> Tensor:
    """[R] float32: the standardised label of each row; 0 where there is none."""
    found: Tensor = cohort.once(
        "standardised labels", lambda c: c.rows_of([torch.from_numpy(standardised(m)) for m in c.members], 0.0)
    )
    return found


def units(cohort: Cohort) -> Tensor:
    """[2, M] float64: m and s of each client."""
    found: Tensor = cohort.once("units of labels", _units)
    return found


def _units(cohort: Cohort) -> Tensor:
    values = [[client.once(name, compute) for client in cohort.members] for name, compute in _CONSTANTS.items()]
    return torch.tensor(values, dtype=torch.float64, device=cohort.device)


# --- metrics: each client's value [M] from the standardised errors of a part


def _means(cohort: Cohort, values: Tensor, rows: Tensor) -> Tensor:
    """Each client's mean of [T] values at some rows: [M] float64; NaN where it has none of them."""
    sums = torch.zeros(cohort.clients, dtype=torch.float64, device=values.device)
    return sums.index_add_(0, cohort.client[rows], values.double()) / cohort.counts(rows).double()


def _errors(cohort: Cohort, outputs: Tensor, rows: Tensor) -> Tensor:
    """[T] float64: z' - z."""
    return outputs[rows, 0].double() - targets(cohort)[rows].double()


def squared_error(cohort: Cohort, outputs: Tensor, part: Part) -> Tensor:
    """The mean of (y' - y)^2 = s^2 (z' - z)^2."""
    rows = rows_of(cohort, part)
    return (_means(cohort, _errors(cohort, outputs, rows).square(), rows) * units(cohort)[1].square()).float()


def root_squared_error(cohort: Cohort, outputs: Tensor, part: Part) -> Tensor:
    """The root of the mean of (y' - y)^2."""
    rows = rows_of(cohort, part)
    return (_means(cohort, _errors(cohort, outputs, rows).square(), rows).sqrt() * units(cohort)[1]).float()


def absolute_error(cohort: Cohort, outputs: Tensor, part: Part) -> Tensor:
    """The mean of |y' - y|."""
    rows = rows_of(cohort, part)
    return (_means(cohort, _errors(cohort, outputs, rows).abs(), rows) * units(cohort)[1]).float()


def explained(cohort: Cohort, outputs: Tensor, part: Part) -> Tensor:
    """R2 = 1 - sum (y' - y)^2 / sum (y - mean of y)^2; NaN where a client's labels there are all equal, or one only."""
    rows = rows_of(cohort, part)
    z = targets(cohort)[rows].double()
    centre = _means(cohort, z, rows)[cohort.client[rows]]
    variance = _means(cohort, (z - centre).square(), rows)
    # Equal labels differ from their mean by rounding in double precision only; distinct ones are apart in single precision.
    defined = variance > 1e-24 * _means(cohort, z.square(), rows)
    ratio = _means(cohort, _errors(cohort, outputs, rows).square(), rows) / variance
    return torch.where(defined, 1.0 - ratio, torch.nan).float()


METRICS = {
    metric.name: metric
    for metric in (
        Metric("r2", "R2", explained, low=-_LARGEST),
        Metric("mae", "mean absolute error", absolute_error, higher_is_better=False, scale=1.0, high=_LARGEST),
        Metric("rmse", "root mean squared error", root_squared_error, higher_is_better=False, scale=1.0, high=_LARGEST),
        Metric("mse", "mean squared error", squared_error, higher_is_better=False, scale=1.0, high=_LARGEST),
    )
}


@register_task(NODE_REGRESSION)
class NodeRegression(Task):
    """The output is one number, the standardised label of a node."""

    title = "a number for every node"
    metrics = METRICS

    def outputs(self, graph: Graph) -> int:
        """One."""
        if graph.class_names is not None:
            raise FedquiltError(
                f"{graph.name} has classes such as '{graph.class_names[0]}' as labels, and {self.name} needs numbers; name a "
                "column of numbers as the label, or choose --task node-classification."
            )
        return 1

    def outputs_of_site(self, site: str, classes: int, named: bool) -> int:
        """One, however many classes a site says that it has: whole numbers differ between sites."""
        if named:
            raise FedquiltError(
                f"Site '{site}' has classes with names as labels, and {self.name} needs numbers; choose another task."
            )
        return 1

    def constants(self) -> Mapping[str, Callable[[Client], float]]:
        """The mean and the deviation of a client's training labels: its predictions are in their units."""
        return _CONSTANTS

    def example_client(self, features: int, outputs: int) -> Client:
        """A ring of twelve nodes with numbers 0, 1, 2, ..., of which a third trains."""
        u = np.arange(12)
        x = np.random.default_rng(0).random((12, features), dtype=np.float32)
        edges = np.sort(np.stack([u, (u + 1) % 12]), axis=0)
        numbers = u.astype(np.float64)
        split = np.array([TRAIN, VAL, TEST], dtype=np.int8)[u % 3]
        return Client(0, Graph("example", edges, x, presence(numbers), 1, numbers=numbers), split)

    def training_loss(self, cohort: Cohort, outputs: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """The mean of (z' - z)^2 over the training nodes."""
        each = (outputs[cohort.training.real, 0] - targets(cohort)[cohort.train]).square()
        return (each * cohort.train_weight).sum(), cohort.mean_over(each.detach(), cohort.train)

    def losses(self, cohort: Cohort, outputs: Tensor, part: Part) -> Tensor:
        """The same on a part: in units of the variance of the client's training labels."""
        rows = rows_of(cohort, part)
        return _means(cohort, _errors(cohort, outputs, rows).square(), rows).float()

    def in_units(self, cohort: Cohort, outputs: Tensor) -> Tensor:
        """y' = m + s z', in double precision: a label may be large and its deviation small."""
        mean, deviation = units(cohort)[:, cohort.client].unsqueeze(2)
        return mean + deviation * outputs.double()

    def known_labels(self, graph: Graph, names: tuple[str, ...]) -> np.ndarray:
        """The numbers; NaN where a node has none."""
        return label_numbers(graph)

    def predict(self, outputs: Tensor) -> Tensor:
        """The outputs, which are in the labels' units."""
        return outputs

    def prediction_rows(
        self, ids: Sequence[object], predictions: np.ndarray, names: tuple[str, ...] | None
    ) -> Iterator[list[str]]:
        """A node's id and its number."""
        yield ["id", "value"]
        for node, value in zip(ids, predictions[:, 0], strict=True):
            yield [str(node), f"{value:.9g}"]

    def prediction_columns(
        self, ids: np.ndarray, predictions: np.ndarray, names: tuple[str, ...] | None
    ) -> dict[str, np.ndarray]:
        """The number of each node, as a number."""
        return {"value": predictions[:, 0]}
