"""Operators made in one pass over the edges, against plain products of matrices."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.graphs import operators
from fedquilt.graphs.graph import Graph
from support.graphs import graphs


def plain_adjacency(graph: Graph) -> sp.csr_matrix:
    rows, columns = np.concatenate([graph.edges, graph.edges[::-1]], axis=1)
    ones = np.ones(rows.size, dtype=np.float32)
    return sp.csr_matrix((ones, (rows, columns)), shape=(graph.nodes, graph.nodes))


def plain_gcn(graph: Graph) -> sp.csr_matrix:
    a = plain_adjacency(graph) + sp.eye(graph.nodes, dtype=np.float32, format="csr")
    scale = sp.diags(1.0 / np.sqrt(np.asarray(a.sum(axis=1)).ravel()))
    return (scale @ a @ scale).tocsr().astype(np.float32)


def plain_mean(graph: Graph) -> sp.csr_matrix:
    a = plain_adjacency(graph)
    scale = sp.diags(1.0 / np.maximum(np.asarray(a.sum(axis=1)).ravel(), 1.0))
    return (scale @ a).tocsr().astype(np.float32)


def assert_identical(one: sp.csr_matrix, two: sp.csr_matrix) -> None:
    two.sort_indices()
    assert one.shape == two.shape
    assert one.dtype == two.dtype == np.float32
    for part in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(one, part), getattr(two, part))


@given(graph=graphs(), seed=st.integers(0, 1000), shuffled=st.booleans())
def test_operators_are_the_plain_ones_bit_for_bit(graph: Graph, seed: int, shuffled: bool) -> None:
    edges = graph.edges
    if shuffled:
        edges = edges[:, np.random.default_rng(seed).permutation(edges.shape[1])]
    assert_identical(operators.adjacency(edges, graph.nodes), plain_adjacency(graph))
    assert_identical(operators.gcn(edges, graph.nodes, np.arange(graph.nodes)), plain_gcn(graph))
    looped = operators.looped_adjacency(edges, graph.nodes, np.arange(graph.nodes))
    assert_identical(looped, (plain_adjacency(graph) + sp.eye(graph.nodes, dtype=np.float32)).tocsr())
    assert_identical(operators.neighbour_mean(edges, graph.nodes), plain_mean(graph))
    assert_identical(graph.adjacency(), plain_adjacency(graph))


def test_padding_gets_no_loop() -> None:
    edges = np.array([[0], [2]])
    made = operators.gcn(edges, 5, np.array([0, 2, 3])).toarray()
    expected = np.zeros((5, 5))
    expected[np.ix_([0, 2], [0, 2])] = 0.5
    expected[3, 3] = 1.0
    assert np.allclose(made, expected)
    assert not made[[1, 4]].any()


def test_parts_of_a_graph_are_normalised_by_the_degrees_of_the_whole() -> None:
    edges, weights = np.array([[0, 0, 1, 2], [1, 2, 3, 3]]), np.array([1.0, 2.0, 0.5, 1.5], dtype=np.float32)
    a = np.eye(4)
    a[edges[0], edges[1]] = a[edges[1], edges[0]] = weights
    assert np.allclose(operators.degrees(edges, 4, weights), a.sum(1))
    assert operators.degrees(edges, 4).tolist() == [3, 3, 3, 3]
    scale = 1 / np.sqrt(a.sum(1))
    part = operators.gcn(edges[:, :2], 4, np.arange(4), weights[:2], operators.degrees(edges, 4, weights))
    assert np.allclose(part.toarray()[0], (scale[:, None] * a * scale)[0])
    numbers = operators.numbered_adjacency(edges, 4).toarray()
    assert numbers.tolist() == [[0, 1, 2, 0], [1, 0, 0, 3], [2, 0, 0, 4], [0, 3, 4, 0]]
