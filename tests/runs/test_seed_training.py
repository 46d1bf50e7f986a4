"""What is kept of one seed that trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedquilt
from fedquilt.graphs.protocol import Protocol
from fedquilt.runs.config import RunConfig
from fedquilt.runs.finished import Run
from fedquilt.runs.folder import RunFolder, SeedFolder
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.runs.seed_training import CONFUSION, train_seed
from support.small_runs import SMALL, own_graph


def test_the_folder_holds_the_nodes_of_each_client_and_the_split(tmp_path: Path) -> None:
    resolved = ResolvedRun(
        RunConfig.build({**SMALL, "dataset": "@given", "method": "local"}), (own_graph(), Protocol())
    )
    run, folder, rounds = Run(result={}), SeedFolder(tmp_path / "seed-4"), []
    summary = train_seed(resolved, 4, folder, rounds.append, run)
    assert folder.done
    assert folder.summary is not None
    assert folder.summary["test"] == summary["test"]
    assert folder.records() == [{**record} for record in rounds]
    partition, split = resolved.cut(4)
    arrays = folder.load_arrays("split-and-partition") or {}
    assert np.array_equal(arrays["nodes"], np.concatenate(partition.nodes))
    assert np.array_equal(arrays["sizes"], partition.sizes)
    assert np.array_equal(arrays["split"], split)
    labels = [np.bincount(resolved.graph.y[nodes], minlength=3) for nodes in partition.nodes]
    assert np.array_equal(arrays["class_counts"], labels)
    assert "groups" not in summary


def test_malicious_and_honest_clients_are_groups_of_the_summary() -> None:
    options = {**SMALL, "method": "fedpub", "clients": 4, "attack": "gaussian", "attack_ratio": 0.5}
    resolved = ResolvedRun(RunConfig.build(options))
    summary = train_seed(resolved, 0, None, None, Run(result={}))
    assert {name: group["clients"] for name, group in summary["groups"].items()} == {"honest": 2, "malicious": 2}
    means = [group["test"] for group in summary["groups"].values()]
    assert np.isclose(np.mean(means), np.mean(summary["clients_test"]))


@pytest.mark.parametrize("options", [{}, {"cohort_size": 2}, {"participation": 0.5}], ids=["whole", "cohorts", "some"])
def test_the_summary_has_every_metric_and_the_confusion_of_the_best_round(
    options: dict[str, Any], tmp_path: Path
) -> None:
    run = fedquilt.run("fedavg", own_graph(), out=tmp_path / "run", **{**SMALL, **options})
    folder = RunFolder.open(tmp_path / "run").seed(0)
    summary, arrays = folder.summary, folder.load_arrays(CONFUSION)
    assert summary is not None
    assert arrays is not None
    frame = run.predict().to_frame()
    test = frame[frame.part == "test"]
    expected = np.zeros((3, 3, 3), dtype=int)
    for client, label, predicted in zip(test["client"], test["label"], test["class"], strict=True):
        expected[client, int(label), int(predicted)] += 1
    assert np.array_equal(arrays["counts"], expected)
    assert summary["confusion"]["counts"] == expected.sum(0).tolist()
    assert summary["figures"]["accuracy"]["test"] == pytest.approx(summary["test"])
    assert summary["figures"]["accuracy"]["clients"] == pytest.approx(summary["clients_test"], abs=1e-5)
    assert run.result["figures"]["log-loss"] == {
        "test_mean": summary["figures"]["log-loss"]["test"],
        "test_std": 0.0,
    }


def test_figures_that_find_no_memory_are_left_out_and_the_run_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("fedquilt.runs.seed_training.final_figures", full)
    run = fedquilt.run("local", own_graph(), **SMALL)
    assert run.result["test_mean"] is not None
    assert "figures" not in run.result
