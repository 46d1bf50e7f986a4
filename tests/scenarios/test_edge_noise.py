"""Noise on edges: how many move, where to, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.graphs.graph import Graph
from fedquilt.scenarios.edge_noise import with_edge_noise
from support.graphs import graphs


def some(nodes: int, edges: np.ndarray) -> Graph:
    return Graph.from_arrays("some", edges, np.ones((nodes, 1)), np.zeros(nodes, dtype=np.int64))


def pairs(graph: Graph) -> set[tuple[int, int]]:
    return {(int(u), int(v)) for u, v in graph.edges.T}


@given(graphs(), st.floats(0, 1), st.integers(0, 2**32))
def test_the_number_of_edges_stays_and_moved_ones_are_new(graph: Graph, chance: float, seed: int) -> None:
    before = pairs(graph)
    noisy = with_edge_noise(graph, chance, np.random.default_rng(seed))
    noisy.validate()
    assert noisy.edges.dtype == np.int64
    assert noisy.edges.shape == graph.edges.shape
    assert len(pairs(noisy)) == graph.edges.shape[1]  # no two the same
    assert pairs(graph) == before
    assert noisy.x is graph.x
    assert noisy.y is graph.y
    assert np.array_equal(noisy.edges, with_edge_noise(graph, chance, np.random.default_rng(seed)).edges)


def test_no_chance_no_change() -> None:
    graph = some(4, np.array([[0, 1], [1, 2]]))
    assert with_edge_noise(graph, 0.0, np.random.default_rng(0)) is graph


@pytest.mark.parametrize("chance", [0.1, 0.5, 1.0])
def test_so_many_move(chance: float) -> None:
    graph = some(300, np.random.default_rng(0).integers(0, 300, (2, 4000)))
    noisy = with_edge_noise(graph, chance, np.random.default_rng(1))
    edges = len(pairs(graph))
    moved = edges - len(pairs(graph) & pairs(noisy))
    assert abs(moved - chance * edges) <= 5 * np.sqrt(edges * chance * (1 - chance))


def test_every_free_pair_is_as_likely() -> None:
    """The only edge of five nodes goes to each of the nine other pairs in turn."""
    graph = some(5, np.array([[1], [3]]))
    counts: dict[tuple[int, int], int] = {}
    for seed in range(900):
        (pair,) = pairs(with_edge_noise(graph, 1.0, np.random.default_rng(seed)))
        counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 9
    assert (1, 3) not in counts
    assert max(abs(count - 100) for count in counts.values()) < 5 * np.sqrt(100)


def test_a_complete_graph_stays_and_an_almost_complete_one_moves_what_it_can() -> None:
    complete = np.stack(np.triu_indices(6, k=1))
    graph = some(6, complete)
    assert pairs(with_edge_noise(graph, 1.0, np.random.default_rng(0))) == pairs(graph)
    almost = some(6, complete[:, 2:])
    noisy = with_edge_noise(almost, 1.0, np.random.default_rng(0))
    assert pairs(noisy) - pairs(almost) == {(0, 1), (0, 2)}
    for nodes in (1, 2, 5):
        lonely = some(nodes, np.zeros((2, 0), dtype=np.int64))
        assert with_edge_noise(lonely, 1.0, np.random.default_rng(0)).edges.shape == (2, 0)
