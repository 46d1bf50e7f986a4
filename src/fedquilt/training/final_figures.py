"""The test figures of trained models: every metric of the task, client by client, and the confusion matrix.

They are computed once, after the last round, from the models of the best validation round. Rounds measure the one metric that
chooses among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.devices.device import Precision, computing_in
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import Method
from fedquilt.training.progress import none_if_nan
from fedquilt.training.round_result import mean

MOST_CLASSES = 60  # with more, a summary has what is right, labelled and predicted of each class, and no matrix
MOST_CELLS = 2_000_000  # of all clients' matrices; with more, only their sum is kept
DIGITS = 6


@dataclass(frozen=True, eq=False)
class FinalFigures:
    """What models are worth on the test part.

    Attributes:
        metrics: by the metric's name [M] as people read them, NaN where it is undefined for a client.
        confusion: [M, C, C] int64, a client's test nodes by true class (rows) and predicted class; None without classes.
    """

    metrics: dict[str, Tensor] = field(default_factory=dict)
    confusion: Tensor | None = None

    def summary(self, class_names: tuple[str, ...] | None) -> dict[str, Any]:
        """The entries of summary.json: `figures`, and `confusion` with the counts over all clients."""
        figures = {
            name: {
                "test": none_if_nan(float(mean(values))),
                "clients": [none_if_nan(round(value, DIGITS)) for value in values.double().tolist()],
            }
            for name, values in self.metrics.items()
        }
        if self.confusion is None:
            return {"figures": figures}
        total = self.confusion.sum(0)
        counts: dict[str, Any] = {
            "class_names": None if class_names is None else list(class_names),
            "labelled": total.sum(1).tolist(),
            "predicted": total.sum(0).tolist(),
            "right": total.diagonal().tolist(),
        }
        if len(total) <= MOST_CLASSES:
            counts["counts"] = total.tolist()
        return {"figures": figures, "confusion": counts}

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of confusion.npz: `counts` [M, C, C]; empty where there are none, or too many."""
        if self.confusion is None or self.confusion.numel() > MOST_CELLS:
            return {}
        return {"counts": self.confusion.to(torch.int32).numpy()}


def final_figures(
    method: Method, cohorts: Iterable[Cohort], models: Mapping[str, Tensor], precision: Precision = "float32"
) -> FinalFigures:
    """The figures of models on the test nodes of their clients.

    Args:
        method: the method with its task.
        cohorts: the clients, in the order of the models.
        models: the personal models, leading axis the client.
        precision: that of the training.
    """
    task, first = method.task, 0
    metrics: dict[str, list[Tensor]] = {}
    counts: list[Tensor] = []
    for cohort in cohorts:
        own = {name: model[first : first + cohort.clients].to(cohort.device) for name, model in models.items()}
        first += cohort.clients
        with torch.no_grad(), computing_in(precision):
            outputs = method.logits(own, task.seen(cohort, "test"))
            for name, metric in task.metrics.items():
                if _defined(method, name):
                    values = metric.function(cohort, outputs, "test").double() * metric.scale
                    metrics.setdefault(name, []).append(values.cpu())
            found = task.confusion(cohort, outputs, "test")
        if found is not None:
            counts.append(found.cpu())
    joined = {name: torch.cat(values) for name, values in metrics.items()}
    return FinalFigures(joined, torch.cat(counts) if counts else None)


def _defined(method: Method, metric: str) -> bool:
    """Whether a metric is defined for so many outputs."""
    try:
        method.task.check("", method.context.outputs, metric)
    except FedquiltError:
        return False
    return True
