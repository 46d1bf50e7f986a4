"""Tasks by name, and what all of them share."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.graphs.split import VAL
from fedquilt.tasks import NODE_CLASSIFICATION
from fedquilt.tasks.base import TASKS, find_metric, find_task, register_task
from fedquilt.tasks.node_classification import NodeClassification
from support.clients import lay, random_client


def test_a_task_is_found_by_its_name_or_the_nearest_is_named() -> None:
    assert isinstance(find_task(NODE_CLASSIFICATION), NodeClassification)
    assert NODE_CLASSIFICATION in TASKS
    with pytest.raises(
        FedquiltError, match=r"There is no task 'node-clasification'; did you mean 'node-classification'\?"
    ):
        find_task("node-clasification")
    with pytest.raises(ValueError, match="registered twice"):
        register_task(NODE_CLASSIFICATION)(NodeClassification)


def test_a_metric_is_found_by_its_name_in_a_task_and_in_all_tasks() -> None:
    task = find_task(NODE_CLASSIFICATION)
    assert task.metric("auc") is find_metric("auc")
    with pytest.raises(
        FedquiltError, match=r"There is no metric 'f1'; choose one of: accuracy, auc, macro-f1, .*log-loss, ece\."
    ):
        task.metric("f1")
    with pytest.raises(FedquiltError, match=r"There is no metric 'acuracy'; did you mean 'accuracy'\?"):
        find_metric("acuracy")


def test_a_client_is_finite_where_all_its_evaluated_outputs_are() -> None:
    rng = np.random.default_rng(0)
    clients = [random_client(rng, m, 20) for m in range(3)]
    task, cohort = find_task(NODE_CLASSIFICATION), lay(clients)
    outputs = torch.zeros(cohort.rows, 3)
    outputs[cohort.train, 0] = torch.nan  # nobody evaluates there
    assert task.finite(cohort, outputs).tolist() == [1.0, 1.0, 1.0]
    mine = cohort.test[cohort.client[cohort.test] == 1]
    outputs[mine[0], 2] = torch.inf
    assert task.finite(cohort, outputs).tolist() == [1.0, 0.0, 1.0]
    assert task.finite(cohort, outputs, [cohort.val]).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", ["node-classification", "node-regression"])
def test_a_mixture_of_models_is_that_of_what_they_predict(name: str) -> None:
    """Probabilities of classes, or numbers; each row by the weights of its client."""
    weights = torch.tensor([[0.2, 0.8], [1.0, 0.0]])
    owner = torch.tensor([1, 0, 0])
    outputs = [torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    task = find_task(name)
    predict = task.predict if name == NODE_CLASSIFICATION else torch.Tensor.clone
    expected = sum(
        predict(o).double() * a[owner].unsqueeze(1) for o, a in zip(outputs, weights.double().T, strict=True)
    )
    assert torch.allclose(predict(task.mixture(outputs, weights, owner)).double(), expected, atol=1e-6)


def test_metrics_read_the_rows_of_a_part_and_count_them() -> None:
    rng = np.random.default_rng(0)
    cohort = lay([random_client(rng, m, 20) for m in range(3)])
    task = find_task(NODE_CLASSIFICATION)
    assert task.rows_of(cohort, "val") is cohort.val
    assert task.counts(cohort, "val").tolist() == [(client.split == VAL).sum() for client in cohort.members]
    link = find_task("link")
    split = lay([link.client(c.id, c.graph, c.split, 0) for c in cohort.members])
    assert link.rows_of(split, "val") is split.nodes
    assert link.counts(split, "val").tolist() == [c.held_out["val"].shape[1] for c in split.members]
