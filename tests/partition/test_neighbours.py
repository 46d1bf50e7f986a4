"""Homophily and neighbour distributions, against loops over nodes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.graphs.graph import Graph
from fedquilt.partition import make_partition
from fedquilt.partition.neighbours import client_homophily, neighbour_distance, neighbour_distribution, node_homophily
from support.graphs import graphs


def neighbours(graph: Graph, node: int) -> list[int]:
    return [int(v if u == node else u) for u, v in graph.edges.T if node in (u, v)]


@given(graphs())
def test_homophily_is_a_mean_over_nodes(graph: Graph) -> None:
    shares = []
    for node in np.flatnonzero(graph.y >= 0):
        known = [v for v in neighbours(graph, node) if graph.y[v] >= 0]
        if known:
            shares.append(np.mean([graph.y[v] == graph.y[node] for v in known]))
    found = node_homophily(graph)
    assert found == pytest.approx(np.mean(shares)) if shares else np.isnan(found)


@given(graphs())
def test_a_distribution_counts_the_ends_of_edges(graph: Graph) -> None:
    found = neighbour_distribution(graph)
    for a in range(graph.classes):
        counts = np.zeros(graph.classes)
        for node in np.flatnonzero(graph.y == a):
            for v in neighbours(graph, node):
                if graph.y[v] >= 0:
                    counts[graph.y[v]] += 1
        if counts.sum():
            assert found[a] == pytest.approx(counts / counts.sum())
        else:
            assert np.isnan(found[a]).all()


@given(graphs(), st.integers(0, 5))
def test_clients_are_compared_class_by_class(graph: Graph, seed: int) -> None:
    if graph.nodes < 3:
        return
    partition = make_partition(graph, "random", clients=3, seed=seed)
    parts = [graph.subgraph(nodes) for nodes in partition.nodes]
    assert client_homophily(graph, partition) == pytest.approx([node_homophily(part) for part in parts], nan_ok=True)
    means = []
    for one, two in combinations([neighbour_distribution(part) for part in parts], 2):
        rows = [abs(a - b).sum() / 2 for a, b in zip(one, two, strict=True) if not np.isnan(a + b).any()]
        if rows:
            means.append(np.mean(rows))
    found = neighbour_distance(graph, partition)
    assert found == pytest.approx(np.mean(means)) if means else np.isnan(found)
