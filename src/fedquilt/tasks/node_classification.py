"""Node classification: the class of every node, by cross-entropy; measured by accuracy and others (`class_metrics`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from copy import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.label_numbers import numbers_in_words
from fedquilt.graphs.split import TEST, TRAIN, VAL
from fedquilt.partition.partition import Partition
from fedquilt.partition.statistics import label_counts
from fedquilt.tasks import NODE_CLASSIFICATION, class_metrics
from fedquilt.tasks.base import Task, register_task
from fedquilt.tasks.class_weights import NONE as NO_WEIGHTS
from fedquilt.tasks.class_weights import class_counts, parse_weights, row_weights
from fedquilt.tasks.metric import Metric, Part, rows_of


def labels(cohort: Cohort) -> Tensor:
    """[R] int64, the class of each row; -1 where there is none."""
    found: Tensor = cohort.once(
        "labels", lambda c: c.rows_of([torch.from_numpy(member.graph.y) for member in c.members], -1)
    )
    return found


def labels_at(cohort: Cohort, rows: Tensor) -> Tensor:
    """The classes of some rows: [T]."""
    return cohort.at("labels", labels(cohort), rows)


def class_count(cohort: Cohort) -> int:
    """C, the number of classes."""
    return cohort.members[0].graph.classes


def training_class_counts(client: Client) -> np.ndarray:
    """[C] int64: training nodes of each class."""
    return np.bincount(client.graph.y[client.training_nodes], minlength=client.graph.classes)


def training_homophily(client: Client) -> float:
    """Share of the edges between two training nodes that join equal labels, (same + 1) / (edges + 2).

    Without such an edge it is one half: nothing is known. Edges count with their weights, which are one on average.
    """
    known = client.split == TRAIN
    u, v = client.graph.edges
    seen = known[u] & known[v]
    same = (client.graph.y[u] == client.graph.y[v])[seen]
    weights = client.edge_weights
    if weights is not None:
        counted = weights[seen].astype(np.float64)
        return float((counted[same].sum() + 1) / (counted.sum() + 2))
    return (int(same.sum()) + 1) / (int(seen.sum()) + 2)


def rows_with_labels(cohort: Cohort, logits: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """What the functions of `class_metrics` take: logits, labels and clients of some rows, and the number of clients."""
    return logits[rows], labels(cohort)[rows], cohort.client[rows], cohort.clients


def losses(cohort: Cohort, logits: Tensor, rows: Tensor) -> Tensor:
    """Each client's mean cross-entropy on some rows: [R, C], [T] -> [M], NaN where it has none of them."""
    return cohort.mean_over(F.cross_entropy(logits[rows], labels_at(cohort, rows), reduction="none"), rows)


def accuracy(cohort: Cohort, logits: Tensor, rows: Tensor) -> Tensor:
    """Each client's share of right answers on some rows: [R, C], [T] -> [M], NaN where it has none of them."""
    return cohort.mean_over((logits[rows].argmax(1) == labels_at(cohort, rows)).float(), rows)


def auc(cohort: Cohort, logits: Tensor, rows: Tensor) -> Tensor:
    """Each client's area under the ROC curve (`class_metrics.auc`): [M].

    NaN where a client has none of the rows, or rows of one class only: the area is undefined there.
    """
    return class_metrics.auc(*rows_with_labels(cohort, logits, rows))


def _class_counts(cohort: Cohort) -> Tensor:
    """[M C] float64: the training nodes of each client and class."""
    known, owner = labels(cohort)[cohort.train], cohort.client[cohort.train]
    return class_counts(known, owner, cohort.clients, class_count(cohort))


def _by_rows(function: Callable[[Tensor, Tensor, Tensor, int], Tensor]) -> Callable[[Cohort, Tensor, Part], Tensor]:
    """A function of `class_metrics` as a metric's."""
    return lambda cohort, logits, part: function(*rows_with_labels(cohort, logits, rows_of(cohort, part)))


METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", lambda cohort, logits, part: accuracy(cohort, logits, rows_of(cohort, part))),
        Metric("auc", "ROC AUC", _by_rows(class_metrics.auc)),
        Metric("macro-f1", "macro F1", _by_rows(class_metrics.macro_f1)),
        Metric("balanced-accuracy", "balanced accuracy", _by_rows(class_metrics.balanced_accuracy)),
        Metric("average-precision", "average precision", _by_rows(class_metrics.average_precision)),
        Metric(
            "log-loss",
            "log-loss",
            _by_rows(class_metrics.log_loss),
            higher_is_better=False,
            scale=1.0,
            high=sys.float_info.max,
        ),
        Metric("ece", "calibration error", _by_rows(class_metrics.calibration_error), higher_is_better=False),
    )
}


@register_task(NODE_CLASSIFICATION)
class NodeClassification(Task):
    """Outputs are the logits of C classes; a node's label is its class."""

    title = "the class of every node"
    metrics = METRICS
    has_classes = True
    class_weights = NO_WEIGHTS

    def weighted(self, class_weights: str, outputs: int) -> NodeClassification:
        """This task with other class weights."""
        parse_weights(class_weights, outputs)
        other = copy(self)
        other.class_weights = class_weights
        return other

    def outputs(self, graph: Graph) -> int:
        """C, the number of classes."""
        if graph.numbers is not None:
            raise FedquiltError(
                f"{graph.name} has {numbers_in_words(graph.numbers)} as labels, and {self.name} needs classes; choose --task "
                "node-regression, or number the classes 0, 1, 2, ... (label_type: class takes each number as a class's name)."
            )
        return graph.classes

    def confusion(self, cohort: Cohort, outputs: Tensor, part: Part) -> Tensor:
        """Each client's counts by true and by predicted class: [M, C, C] int64."""
        return class_metrics.confusion(*rows_with_labels(cohort, outputs, rows_of(cohort, part)))

    def check_same(self, graph: Graph, outputs: int, output_names: tuple[str, ...] | None) -> None:
        """The same number of classes, and the same names in the same order."""
        if graph.classes != outputs:
            raise FedquiltError(
                f"{graph.name} has {graph.classes} classes and the run was trained on {outputs}; give a graph with "
                "the same classes, or say classes= where its labels lack the last ones."
            )
        if None not in (graph.class_names, output_names) and graph.class_names != output_names:
            raise FedquiltError(
                f"{graph.name} calls its classes differently from the run, or numbers them in another order; "
                f"name them in this order: {', '.join(output_names or ())}."
            )

    def example_client(self, features: int, outputs: int) -> Client:
        """A ring of nodes, each class among its training nodes."""
        nodes = 3 * max(outputs, 4)
        u = np.arange(nodes)
        x = np.random.default_rng(0).random((nodes, features), dtype=np.float32)
        edges = np.stack([u, (u + 1) % nodes])
        edges.sort(axis=0)
        split = np.array([TRAIN, VAL, TEST], dtype=np.int8)[u // (nodes // 3)]
        return Client(0, Graph("example", edges, x, (u % outputs).astype(np.int64), outputs), split)

    def holdings(self, graph: Graph, partition: Partition) -> dict[str, np.ndarray]:
        """[M, C] how many nodes of each class a client holds."""
        return {"class_counts": label_counts(graph, partition)}

    def training_loss(self, cohort: Cohort, outputs: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """Cross-entropy on the training nodes, classes weighted where the run asks for it."""
        each = F.cross_entropy(outputs[cohort.training.real], labels_at(cohort, cohort.train), reduction="none")
        if self.class_weights == NO_WEIGHTS:
            return (each * cohort.train_weight).sum(), cohort.mean_over(each.detach(), cohort.train)
        weight: Tensor = cohort.once(f"class weights {self.class_weights}", self._row_weights)
        return (each * weight).sum(), cohort.mean_over(each.detach() * weight / cohort.train_weight, cohort.train)

    def _row_weights(self, cohort: Cohort) -> Tensor:
        """[T] the share of each training row in its client's loss."""
        known, owner = labels(cohort)[cohort.train], cohort.client[cohort.train]
        classes, fixed = class_count(cohort), parse_weights(self.class_weights, class_count(cohort))
        counts = None if cohort.origin is cohort else cohort.origin.once("training classes", _class_counts)
        return row_weights(known, owner, cohort.clients, classes, fixed, counts)

    def losses(self, cohort: Cohort, outputs: Tensor, part: Part) -> Tensor:
        """Each client's mean cross-entropy."""
        return losses(cohort, outputs, rows_of(cohort, part))

    def mixture(self, outputs: Sequence[Tensor], weights: Tensor, owner: Tensor) -> Tensor:
        """log p of p = sum_v a_v softmax(logits_v): [T, C] each -> [T, C]."""
        terms = [
            o.log_softmax(1) + a.log()[owner].unsqueeze(1) for o, a in zip(outputs, weights.unbind(1), strict=True)
        ]
        return torch.stack(terms).logsumexp(0)

    def known_labels(self, graph: Graph, names: tuple[str, ...]) -> np.ndarray:
        """The names of the true classes; empty where a node has none."""
        return np.array([*names, ""])[graph.y]

    def predict(self, outputs: Tensor) -> Tensor:
        """Class probabilities."""
        return outputs.softmax(1)

    def prediction_warnings(self, graph: Graph, outputs: int, names: tuple[str, ...] | None) -> Iterator[str]:
        """A class of the graph that the model does not know. Labels do not influence predictions."""
        if names is not None and graph.class_names is not None:
            strange = [f"'{name}'" for name in graph.class_names if name not in names]
        else:
            strange = list(map(str, range(outputs, graph.classes)))
        if strange:
            known = ", ".join(names) if names is not None else f"0 to {outputs - 1}"
            yield (
                f"{graph.name} has the class {strange[0]}, which the model was not trained on and never predicts; "
                f"it knows: {known}."
            )

    def prediction_rows(
        self, ids: Sequence[object], predictions: np.ndarray, names: tuple[str, ...] | None
    ) -> Iterator[list[str]]:
        """A node's id, its most likely class, and the probability of each class."""
        classes = names or tuple(map(str, range(predictions.shape[1])))
        yield ["id", "class", *(f"p_{name}" for name in classes)]
        for node, best, chances in zip(ids, predictions.argmax(1), predictions, strict=True):
            yield [str(node), classes[best], *(f"{chance:.6g}" for chance in chances)]

    def prediction_columns(
        self, ids: np.ndarray, predictions: np.ndarray, names: tuple[str, ...] | None
    ) -> dict[str, np.ndarray]:
        """The most likely class as text, and the probability of each class as a number."""
        classes = names or tuple(map(str, range(predictions.shape[1])))
        best = {"class": np.array(classes)[predictions.argmax(1)]}
        return best | {f"p_{name}": predictions[:, place] for place, name in enumerate(classes)}
