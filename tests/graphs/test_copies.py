"""Copies: groups of equal nodes against brute force, and when they give labels away."""

from __future__ import annotations

import tracemalloc
from typing import Any, get_args

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.graphs.copies import (
    CopyKind,
    describe_copies,
    equal_neighbours,
    equal_rows,
    find_copies,
    with_copies,
)
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import parse_split
from fedquilt.runs.config import KeepCopies
from support.graphs import dense, graphs, tiny

KINDS = get_args(CopyKind)


def same_pairs(numbers: np.ndarray) -> np.ndarray:
    return numbers[:, None] == numbers[None, :]


def brute_force(graph: Graph, kind: str) -> np.ndarray:
    """[N, N] bool: which nodes are copies, pair by pair."""
    a, x = graph.adjacency().toarray(), dense(graph)
    neighbours = np.array(
        [[i == j or (a[i].any() and (a[i] == a[j]).all()) for j in range(len(a))] for i in range(len(a))]
    )
    features = (x[:, None, :] == x[None, :, :]).all(axis=2)
    pairs = {"neighbours": neighbours, "features": features, "both": neighbours | features}[kind]
    for _ in range(len(a)):  # chains of pairs
        pairs = (pairs.astype(int) @ pairs.astype(int)) > 0
    return pairs


@given(graphs(), st.sampled_from(KINDS))
def test_groups_are_those_of_brute_force(graph: Graph, kind: CopyKind) -> None:
    copies = find_copies(graph, kind)
    assert copies.dtype == np.int64
    assert np.array_equal(same_pairs(copies), brute_force(graph, kind))
    # numbered in order of first appearance
    assert np.array_equal(np.unique(copies, return_index=True)[1], np.sort(np.unique(copies, return_index=True)[1]))
    assert set(copies) == set(range(copies.max() + 1))


def test_a_node_without_neighbours_is_no_copy() -> None:
    graph = tiny(edges=np.array([[0, 1], [2, 2]]), x=np.ones((5, 1)), y=np.zeros(5, int))
    assert equal_neighbours(graph).tolist() == [0, 0, 1, 2, 3]
    assert equal_rows(sp.csr_matrix(graph.x)).tolist() == [0] * 5


@given(graphs(), st.sampled_from(KINDS), st.sampled_from(["34/33/33", "3fold"]), st.integers(0, 3))
def test_a_split_never_separates_a_group(graph: Graph, kind: CopyKind, text: str, seed: int) -> None:
    marked = with_copies(graph, kind)
    if len(np.unique(marked.copies[marked.y >= 0])) < 4:
        return
    parts = parse_split(text).draw(marked, seed)
    for group in np.unique(marked.copies):
        assert len(set(parts[(marked.copies == group) & (graph.y >= 0)])) <= 1


def test_with_copies_marks_forgets_or_leaves_them() -> None:
    graph = tiny(copies=np.array([5, 5, 1, 0]))
    assert with_copies(graph, None) is graph
    assert with_copies(graph, "never").copies is None
    assert with_copies(graph, "neighbours").copies.tolist() == [0, 1, 2, 3]
    star = tiny(edges=np.array([[0, 0, 0], [1, 2, 3]]))
    assert with_copies(star, "neighbours").copies.tolist() == [0, 1, 1, 1]


def test_a_run_has_the_kinds_and_never() -> None:
    assert get_args(KeepCopies) == (*KINDS, "never")


def pages(pairs: int, same_label: bool, seed: int = 0) -> Graph:
    """Pairs of nodes with the same five random neighbours; both or none of a pair have the same random label."""
    rng = np.random.default_rng(seed)
    hubs = 60
    near = np.stack([rng.permutation(hubs)[:5] for _ in range(pairs)]).repeat(2, axis=0)
    y = rng.integers(0, 4, hubs + 2 * pairs)
    if same_label:
        y[hubs + 1 :: 2] = y[hubs::2]
    path = np.arange(hubs - 1)  # joins the hubs, so that no two of them are alike
    edges = np.stack(
        [
            np.concatenate([path, hubs + np.arange(2 * pairs).repeat(5)]),
            np.concatenate([path + 1, near.ravel()]),
        ]
    )
    return Graph.from_arrays("pages", edges, rng.normal(size=(len(y), 3)), y)


def test_copies_that_give_labels_away_are_told_from_those_that_do_not() -> None:
    told = describe_copies(pages(100, same_label=True), "neighbours")
    assert told.share == pytest.approx(200 / 260)
    assert told.agreement == 1
    assert told.reference == pytest.approx(0.25, abs=0.05)
    assert told.gives_away
    chance = describe_copies(pages(100, same_label=False), "neighbours")
    assert chance.agreement == pytest.approx(0.25, abs=0.1)
    assert not chance.gives_away
    few = describe_copies(pages(3, same_label=True), "neighbours")
    assert few.agreement == 1
    assert not few.gives_away
    none = describe_copies(pages(100, same_label=True), "features")
    assert (none.share, none.gives_away) == (0, False)


def test_leaves_of_homophilous_hubs_are_no_alarm() -> None:
    """All leaves of a hub have the hub's label: a walk of two steps finds it as well, so a copy adds nothing."""
    hubs = 10
    hub = np.arange(hubs).repeat(5)
    near = [
        (i, (i + 2) % hubs) for i in range(hubs)
    ]  # hubs with the same label are joined: 0, 2, 4, ... and 1, 3, 5, ...
    edges = np.concatenate([np.stack([hubs + np.arange(len(hub)), hub]), np.array(near).T], axis=1)
    y = np.concatenate([np.arange(hubs) % 2, hub % 2])
    found = describe_copies(Graph.from_arrays("stars", edges, np.eye(len(y)), y), "neighbours")
    assert found.share > 0.8
    assert found.agreement == found.reference == 1
    assert not found.gives_away


@given(graphs())
def test_figures_are_those_of_loops(graph: Graph) -> None:
    for kind in ("neighbours", "features"):
        report = describe_copies(graph, kind)
        pairs = brute_force(graph, kind) & (graph.y >= 0) & (graph.y >= 0)[:, None]
        np.fill_diagonal(pairs, False)
        has = np.flatnonzero(pairs.any(axis=1))
        assert report.share == pytest.approx(len(has) / (graph.y >= 0).sum())
        if not len(has):
            assert np.isnan(report.agreement)
            continue
        alike = graph.y[:, None] == graph.y[None, :]
        assert report.agreement == pytest.approx(np.mean([alike[v, pairs[v]].mean() for v in has]))
        assert report.reference == pytest.approx(_reference(graph, kind, pairs, has))


def _reference(graph: Graph, kind: str, pairs: np.ndarray, has: np.ndarray) -> float:
    chance = np.mean([np.mean(graph.y[has] == graph.y[v]) for v in has])
    if kind == "features":
        return float(chance)
    a = graph.adjacency().toarray()
    found: list[Any] = []
    for v in has:
        ends = [w for u in np.flatnonzero(a[v]) for w in np.flatnonzero(a[u])]
        ends = [w for w in ends if graph.y[w] >= 0 and w != v and not pairs[v, w]]
        if ends:
            found.append(np.mean(graph.y[ends] == graph.y[v]))
    return float(np.mean(found)) if found else float(chance)


def test_many_classes_take_no_memory() -> None:
    """Nodes times classes would be 1 GB here, groups times classes as much."""
    nodes, classes = 12_000, 10_000
    hub = np.stack([np.zeros(nodes - 1, dtype=np.int64), np.arange(1, nodes)])
    graph = Graph.from_arrays("star", hub, np.arange(nodes).reshape(-1, 1), np.arange(nodes) % classes)
    tracemalloc.start()
    try:
        found = describe_copies(graph, "neighbours"), describe_copies(graph, "features")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10**8
    assert [round(copies.share, 3) for copies in found] == [1.0, 0.0]
