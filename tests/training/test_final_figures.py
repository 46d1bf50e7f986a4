"""The figures at the end of a training: of a cohort as of its clients alone, and as a summary has them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.graphs.split import TEST
from fedquilt.tasks.node_classification import METRICS
from fedquilt.training import final_figures as module
from fedquilt.training.final_figures import FinalFigures, final_figures
from support.trained_sites import trained


def test_a_cohorts_figures_are_those_of_its_clients() -> None:
    method, clients, models = trained("fedavg")
    whole = final_figures(method, [Cohort(clients)], models)
    apart = final_figures(method, (Cohort([client]) for client in clients), models)
    assert list(whole.metrics) == list(METRICS)
    for name, values in whole.metrics.items():
        assert values.shape == (3,)
        assert torch.allclose(values, apart.metrics[name], atol=1e-3, equal_nan=True)
    assert whole.confusion is not None
    assert apart.confusion is not None
    assert torch.equal(whole.confusion, apart.confusion)
    tested = [int((client.split == TEST).sum()) for client in clients]
    assert whole.confusion.sum((1, 2)).tolist() == tested
    right = whole.confusion.diagonal(dim1=1, dim2=2).sum(1) / torch.tensor(tested) * 100
    assert torch.allclose(whole.metrics["accuracy"].float(), right)


def test_a_summary_has_means_over_the_clients_that_have_a_value_and_the_sum_of_the_counts() -> None:
    counts = torch.tensor([[[3, 1], [0, 2]], [[0, 0], [0, 0]], [[1, 0], [4, 0]]])
    figures = FinalFigures({"accuracy": torch.tensor([50.0, math.nan, 20.0])}, counts)
    assert figures.summary(("ill", "well")) == {
        "figures": {"accuracy": {"test": 35.0, "clients": [50.0, None, 20.0]}},
        "confusion": {
            "class_names": ["ill", "well"],
            "labelled": [5, 6],
            "predicted": [8, 3],
            "right": [4, 2],
            "counts": [[4, 1], [4, 2]],
        },
    }
    assert np.array_equal(figures.arrays()["counts"], counts)
    assert figures.summary(None)["confusion"]["class_names"] is None


def test_very_many_classes_and_clients_are_kept_without_the_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CLASSES", 1)
    monkeypatch.setattr(module, "MOST_CELLS", 3)
    figures = FinalFigures({}, torch.ones(1, 2, 2, dtype=torch.int64))
    assert figures.summary(None)["confusion"] == {
        "class_names": None, "labelled": [2, 2], "predicted": [2, 2], "right": [1, 1]
    }  # fmt: skip
    assert figures.arrays() == {}
    assert FinalFigures().arrays() == {}
    assert FinalFigures().summary(None) == {"figures": {}}
