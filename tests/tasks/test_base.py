"""Tasks by name, and what all of them share."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.errors import FedquiltError
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
