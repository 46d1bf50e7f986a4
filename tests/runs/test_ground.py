from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.partition.make import make_partition
from fedquilt.partition.storage import save
from fedquilt.runs.config import RunConfig
from fedquilt.runs.execute import execute_run, resume_run
from fedquilt.runs.ground import cut_differences, cut_of, ground_differences, ground_of
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.runs.seal import FIXED, seal_of
from support.small_runs import SMALL, own_graph


def resolved(graph: Graph, path: Path, **options: Any) -> ResolvedRun:
    write_npz(graph, path / "mine.npz")
    return ResolvedRun(RunConfig.build({**SMALL, "dataset": str(path / "mine.npz"), "method": "fedavg", **options}))


def sealed(run: ResolvedRun) -> dict[str, Any]:
    return seal_of({"resolved": run.facts()}, ground_of(run))


def with_a_node(graph: Graph) -> Graph:
    return replace(graph, x=np.vstack([graph.x, graph.x[:1]]), y=np.append(graph.y, 0))


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        (lambda g: replace(g, y=g.y[::-1].copy()), "its labels differ"),
        (lambda g: replace(g, x=g.x[::-1].copy()), "its features differ"),
        (lambda g: replace(g, x=g.x[::-1].copy(), y=g.y[::-1].copy()), "features and labels differ"),
        (lambda g: replace(g, edges=g.edges[:, 3:]), "its edges differ"),
        (with_a_node, "it has 91 nodes, not 90"),
    ],
)
def test_a_graph_that_changed_is_named(change: Callable[[Graph], Graph], clause: str, tmp_path: Path) -> None:
    graph = own_graph()
    facts = sealed(resolved(graph, tmp_path))
    assert ground_differences(facts, resolved(graph, tmp_path)) == []
    (found,) = ground_differences(facts, resolved(change(graph), tmp_path))
    assert found.what == f"the graph {tmp_path / 'mine.npz'} changed since it began: {clause}"
    assert found.kind == FIXED


def test_a_graph_that_changed_is_named_where_it_can_no_longer_be_cut(tmp_path: Path) -> None:
    graph = own_graph()
    run = execute_run(resolved(graph, tmp_path).config, tmp_path / "run")
    (tmp_path / "run" / "seed-0" / "summary.json").unlink()
    write_npz(replace(graph, y=np.where(np.arange(90) < 2, graph.y, -1)), tmp_path / "mine.npz")
    with pytest.raises(FedquiltError, match="too few to split"):
        ResolvedRun(RunConfig.build({**SMALL, "dataset": str(tmp_path / "mine.npz"), "method": "fedavg"}))
    with pytest.raises(FedquiltError, match=r"the graph .*mine.npz changed since it began: its labels differ"):
        resume_run(run.folder)


def test_a_given_split_that_changed_is_named(tmp_path: Path) -> None:
    graph = own_graph(masks=True)
    facts = sealed(resolved(graph, tmp_path))
    masks = {"train": graph.masks["test"], "val": graph.masks["val"], "test": graph.masks["train"]}
    (found,) = ground_differences(facts, resolved(replace(graph, masks=masks), tmp_path))
    assert found.what.endswith("changed since it began: its given split differs")


def test_a_partition_that_was_made_again_is_named(tmp_path: Path) -> None:
    graph, path = own_graph(), tmp_path / "cut.npz"
    save(make_partition(graph, "random", 3, 0), path)
    facts = sealed(resolved(graph, tmp_path, partition=str(path)))
    save(make_partition(graph, "random", 3, 1), path)
    (found,) = ground_differences(facts, resolved(graph, tmp_path, partition=str(path)))
    assert found.what == f"the partition {path} changed: clients hold other nodes"


def test_a_partition_or_a_split_that_comes_out_otherwise_is_named(tmp_path: Path) -> None:
    run = resolved(own_graph(), tmp_path, seeds=[0, 7])
    facts = sealed(run)
    assert set(facts["cuts"]) == {"0"}
    assert cut_differences(facts, run, 7) == []  # it did not begin yet
    for part, clause in (
        ("partition", "the disjoint partition of seed 7 comes out otherwise: clients hold other nodes"),
        ("split", "the split of seed 7 comes out otherwise: other nodes are trained and tested on"),
    ):
        facts["cuts"]["7"] = cut_of(run, 7) | {part: "another"}
        (found,) = cut_differences(facts, run, 7)
        assert found.what == clause
    facts["cuts"]["7"] = cut_of(run, 7)
    assert cut_differences(facts, run, 7) == []


def test_a_default_that_changed_is_named_and_a_new_setting_is_not(tmp_path: Path) -> None:
    run = resolved(own_graph(), tmp_path)
    facts = sealed(run)
    settings = facts["config"]["resolved"]["settings"]
    del settings["hidden"]
    assert ground_differences(facts, run) == []
    settings["lr"] = 123.0
    (found,) = ground_differences(facts, run)
    assert found.what.startswith("the setting lr was 123.0 and comes out as ")
