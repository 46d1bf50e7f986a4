"""Test labels cannot influence a search: it does not have them, and would not look."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.split import NONE, TEST, TRAIN, VAL
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.training.loop import Training
from fedquilt.tuning.validation_only import ValidationOnlyRun
from support.searches import SMALL, search, told
from support.small_runs import own_graph

OPTIONS: dict[str, Any] = {"trials": 10, "rounds": 6}


def relabelled(graph: Graph, part: str) -> Graph:
    """Another label for every node of a part."""
    assert graph.masks is not None
    return replace(graph, y=np.where(graph.masks[part], (graph.y + 1) % graph.classes, graph.y))


def searched(graph: Graph, folder: Path, as_file: bool) -> tuple[Any, str]:
    """What a search finds, and its best.yaml; the folder is gone afterwards, so that the next one has the same name."""
    file = folder.with_suffix(".npz")
    write_npz(graph, file)
    tuned = search(dataset=str(file) if as_file else graph, into=folder, **OPTIONS)
    best = (folder / "best.yaml").read_text()
    shutil.rmtree(folder)
    return told(tuned), best


@pytest.mark.parametrize("as_file", [True, False], ids=["file", "object"])
def test_other_test_labels_change_nothing_at_all(tmp_path: Path, as_file: bool) -> None:
    graph = own_graph(masks=True)
    one = searched(graph, tmp_path / "search", as_file)
    assert searched(relabelled(graph, "test"), tmp_path / "search", as_file) == one
    assert any(state == "stopped" for _, _, _, state, *_ in one[0][:-1])


def test_other_validation_labels_do(tmp_path: Path) -> None:
    graph = own_graph(masks=True)
    one, two = (search(dataset=g, **OPTIONS) for g in (graph, relabelled(graph, "val")))
    assert told(one) != told(two)


def test_a_search_does_not_have_test_labels() -> None:
    options = {k: v for k, v in SMALL.items() if k != "settings"}
    config = RunConfig.build({"method": "fedavg", "dataset": "patchwork", **options})
    run = ValidationOnlyRun(config)
    for client, whole in zip(run.clients(0), ResolvedRun(config).clients(0), strict=True):
        assert (whole.split == TEST).any()
        assert (client.graph.y[whole.split == TEST] == -1).all()
        assert (client.split[whole.split == TEST] == NONE).all()
        for part in (TRAIN, VAL):
            assert (client.graph.y[client.split == part] >= 0).all()
    training = run.training(0)
    training.run()
    for record in training.records:
        assert record["test"] is None
        assert set(record["clients"]["test"]) == {None}


def test_where_validation_and_test_disagree_validation_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were a test metric to come as far as the records, it would still not be looked at."""
    whole = Training._metric_entries

    def lying(self: Training, *arguments: Any) -> dict[str, Any]:
        lr = self.method.settings.lr
        return whole(self, *arguments) | {"val": 100 * lr, "test": 100 - 100 * lr}

    monkeypatch.setattr(Training, "_metric_entries", lying)
    tuned = search(trials=9, space={"lr": [0.01, 0.3, 0.9]})
    assert {t.settings["lr"]: t.val for t in tuned.trials if t.val is not None} == {0.01: 1.0, 0.3: 30.0, 0.9: 90.0}
    assert tuned.best_settings["lr"] == 0.9
