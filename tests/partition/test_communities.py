from __future__ import annotations

import random
import sys
from dataclasses import replace

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.partition.communities import communities
from support.partitions import cliques, make_graph, random_graph


def test_cliques_are_communities() -> None:
    labels = communities(cliques(10, 8, 5), seed=0)
    assert np.unique(labels[:10]).size == 1
    assert np.array_equal(np.sort(np.bincount(labels)), [5, 8, 10])


def test_an_isolated_node_is_a_community() -> None:
    assert np.array_equal(np.sort(communities(make_graph(np.zeros((2, 0), np.int64), 4), seed=0)), np.arange(4))


def test_same_seed_same_communities_in_any_order_of_edges() -> None:
    graph = random_graph(150, 0.05)
    shuffled = replace(graph, edges=graph.edges[:, np.random.default_rng(1).permutation(graph.edges.shape[1])])
    found = communities(graph, seed=3)
    random.seed(99)
    assert np.array_equal(found, communities(graph, seed=3))
    assert np.array_equal(found, communities(shuffled, seed=3))
    assert any(not np.array_equal(found, communities(graph, seed=seed)) for seed in range(4, 9))


def test_the_caller_keeps_igraphs_default_generator() -> None:
    import igraph

    communities(random_graph(30), seed=0)
    random.seed(5)
    first = igraph.Graph.Erdos_Renyi(20, 0.5).get_edgelist()
    random.seed(5)
    assert igraph.Graph.Erdos_Renyi(20, 0.5).get_edgelist() == first


def test_without_igraph_the_error_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "igraph", None)
    with pytest.raises(FedquiltError, match=r"igraph.*saved partition"):
        communities(random_graph(5), seed=0)
