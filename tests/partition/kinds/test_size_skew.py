"""The kind `size-skew`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.make import make_partition
from fedquilt.partition.statistics import statistics
from support.partitions import covers_once, graphs, loose_communities, random_graph, same


@given(graphs(least=12), st.integers(1, 6), st.integers(0, 99), st.sampled_from([1e-3, 0.5, 50.0]))
def test_all_nodes_are_dealt_and_each_client_has_enough(graph: Graph, clients: int, seed: int, alpha: float) -> None:
    partition = make_partition(graph, "size-skew", clients, seed, alpha=alpha)
    assert covers_once(partition)
    assert partition.sizes.min() >= partition.settings["min_nodes"] == max(1, min(10, graph.nodes // (2 * clients)))


def test_sizes_are_more_unequal_as_alpha_falls() -> None:
    graph = loose_communities()
    found = [
        np.mean([make_partition(graph, "size-skew", 6, seed, alpha=alpha).sizes.std() for seed in range(6)])
        for alpha in (0.05, 1.0, 10.0, 1000.0)
    ]
    assert found == sorted(found, reverse=True)
    even = make_partition(graph, "size-skew", 6, alpha=1e5).sizes
    assert np.ptp(even) < 0.2 * graph.nodes / 6


def test_clients_keep_edges() -> None:
    graph = loose_communities()
    lost = [statistics(graph, make_partition(graph, kind, 6, 0)).missing_fraction for kind in ("size-skew", "random")]
    assert lost[0] < 0.7 * lost[1]


def test_a_seed_gives_one_partition_and_the_least_is_kept() -> None:
    graph = loose_communities()
    one = make_partition(graph, "size-skew", 5, 3)
    assert same(one.nodes, make_partition(graph, "size-skew", 5, 3, alpha=0.5).nodes)
    assert not same(one.nodes, make_partition(graph, "size-skew", 5, 4).nodes)
    assert make_partition(graph, "size-skew", 5, 3, alpha=0.01, min_nodes=25).sizes.min() >= 25


def test_too_many_clients_are_refused() -> None:
    with pytest.raises(FedquiltError, match="60 nodes, too few for 7 clients of 10 nodes; ask for fewer"):
        make_partition(random_graph(60), "size-skew", 7, min_nodes=10)
