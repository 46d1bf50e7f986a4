"""A finished run as Python has it; tests/test_admission.py has what it admits."""

from __future__ import annotations

import fedquilt
from support.small_runs import SMALL, own_graph


def test_a_run_without_a_test_metric_can_be_shown() -> None:
    """AUC is undefined where the test nodes are of one class."""
    graph = own_graph(classes=2, masks=True)
    assert graph.masks is not None
    graph.y[graph.masks["test"]] = 1
    run = fedquilt.run("fedavg", graph, metric="auc", **SMALL)
    assert run.result["test_mean"] is None
    assert run.result["test_std"] is None
    assert run.result["seeds"][0]["test"] is None
    assert "no test auc" in repr(run)
