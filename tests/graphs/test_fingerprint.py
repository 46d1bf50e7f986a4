from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.graphs.fingerprint import array_digest, fingerprints
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import read_npz, write_npz
from support.small_runs import own_graph


def flipped(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array[::-1])


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda g: replace(g, y=flipped(g.y)), {"labels"}),
        (lambda g: replace(g, classes=g.classes + 1), {"labels"}),
        (lambda g: replace(g, x=flipped(g.x)), {"features"}),
        (lambda g: replace(g, edges=g.edges[:, 1:]), {"edges"}),
        (lambda g: replace(g, masks={**g.masks, "val": g.masks["test"], "test": g.masks["val"]}), {"given split"}),
        (lambda g: replace(g, copies=np.zeros(g.nodes, dtype=np.int64)), {"copies"}),
        (lambda g: replace(g, class_names=("b", "a", "c")), {"class names"}),
        (lambda g: replace(g, name="other", ids=np.arange(g.nodes).astype(str)), set()),
    ],
)
def test_a_change_is_found_in_its_part(change: Callable[[Graph], Graph], parts: set[str]) -> None:
    graph = replace(own_graph(masks=True), class_names=("a", "b", "c"))
    before, after = fingerprints(graph), fingerprints(change(graph))
    assert {name for name in before if before[name] != after[name]} == parts


def test_the_same_graph_has_the_same_fingerprints() -> None:
    graph = own_graph()
    assert fingerprints(graph) == fingerprints(own_graph())
    sparse = replace(graph, x=sp.csr_matrix(graph.x))
    assert fingerprints(sparse) == fingerprints(replace(graph, x=sp.csr_matrix(graph.x)))
    shorter = replace(sparse, x=sp.csr_matrix(graph.x[:, :-1]))
    assert fingerprints(sparse)["features"] != fingerprints(shorter)["features"]


def shuffled(graph: Graph) -> Graph:
    return replace(graph, edges=graph.edges[:, np.random.default_rng(1).permutation(graph.edges.shape[1])])


def unsorted(graph: Graph) -> Graph:
    """With sparse features whose indices fall within a row, as 64-bit numbers, and with a zero that is stored."""
    rows = np.arange(0, 3 * graph.nodes + 1, 3, dtype=np.int64)
    columns = np.tile(np.array([2, 1, 0], dtype=np.int64), graph.nodes)
    data = graph.x[:, ::-1].ravel().copy()
    data[4] = 0.0
    return replace(graph, x=sp.csr_matrix((data, columns, rows), shape=graph.x.shape))


def with_negative_zeros(graph: Graph) -> Graph:
    return replace(graph, x=np.where(graph.x > 0, np.float32(1), np.float32(-0.0)))


@pytest.mark.parametrize(
    "change",
    [
        lambda g: g,
        shuffled,
        unsorted,
        with_negative_zeros,
        lambda g: replace(g, copies=np.arange(g.nodes) // 2, class_names=("a", "b", "c")),
        lambda g: replace(own_graph(masks=True), edges=shuffled(g).edges),
    ],
)
def test_a_graph_that_is_written_and_read_has_the_same_fingerprints(
    change: Callable[[Graph], Graph], tmp_path: Path
) -> None:
    graph = change(own_graph())
    write_npz(graph, tmp_path / "graph.npz")
    assert fingerprints(read_npz(tmp_path / "graph.npz")) == fingerprints(graph)


def test_shape_type_and_order_count() -> None:
    one, two = np.zeros(4), np.ones(4)
    digests = [
        array_digest(arrays)
        for arrays in ([], [one], [one.reshape(2, 2)], [one.astype(np.float32)], [one, two], [two, one], [one[:0]])
    ]
    assert len(set(digests)) == len(digests)
    assert array_digest([np.arange(6).reshape(2, 3).T]) == array_digest(
        [np.ascontiguousarray(np.arange(6).reshape(2, 3).T)]
    )
