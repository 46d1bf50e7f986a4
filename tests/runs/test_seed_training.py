"""What is kept of one seed that trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedquilt.graphs.protocol import Protocol
from fedquilt.runs.config import RunConfig
from fedquilt.runs.finished import Run
from fedquilt.runs.folder import SeedFolder
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.runs.seed_training import train_seed
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
