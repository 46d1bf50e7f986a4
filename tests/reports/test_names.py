from __future__ import annotations

import subprocess
import sys

import pytest

from fedquilt.reports.names import _KNOWN, MetricName, method_title, metric_name
from fedquilt.tasks.base import TASKS
from fedquilt.tasks.metric import Metric
from support.cli import environment


def test_metric_labels() -> None:
    assert metric_name("accuracy").label == "Accuracy (%)"
    assert metric_name("auc").label == "ROC AUC (%)"
    assert metric_name("balanced_accuracy").label == "Balanced accuracy (%)"


def test_what_is_known_here_is_what_the_tasks_say() -> None:
    for task in TASKS.all().values():
        for name, metric in task.metrics.items():
            if name in _KNOWN:
                assert _KNOWN[name] == MetricName(metric.title, metric.scale == 100.0, metric.higher_is_better)


def test_a_metric_of_another_task_is_read_as_the_task_says(monkeypatch: pytest.MonkeyPatch) -> None:
    task = next(iter(TASKS.all().values()))
    rmse = Metric("rmse", "RMSE", lambda *_: NotImplemented, higher_is_better=False, scale=1.0)
    monkeypatch.setattr(task, "metrics", {**task.metrics, "rmse": rmse})
    name = metric_name("rmse")
    assert (name.label, name.unit, name.higher_is_better) == ("RMSE", "", False)


def test_usual_metrics_need_no_torch() -> None:
    script = "import sys; from fedquilt.reports.names import metric_name; metric_name('auc'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], env=environment()).returncode == 0


def test_methods_are_called_as_in_papers() -> None:
    assert method_title("fedpub") == "FED-PUB"
    assert method_title("of-somebody-else") == "of-somebody-else"
