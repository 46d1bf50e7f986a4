"""The kind `imbalanced`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.make import make_partition
from fedquilt.partition.metis import cut
from support.partitions import covers_once, graphs, loose_communities, random_graph, same


@given(graphs(least=12), st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 99))
def test_imbalanced_merges_whole_parts(graph: Graph, sizes: list[int], seed: int) -> None:
    partition = make_partition(graph, "imbalanced", seed=seed, sizes=sizes)
    labels = cut(graph, sum(sizes))
    assert covers_once(partition)
    assert [np.unique(labels[held]).size for held in partition.nodes] == sizes


def test_imbalanced_by_default_is_ten_clients_of_twenty_parts() -> None:
    graph = loose_communities()
    partition = make_partition(graph, "imbalanced")
    labels = cut(graph, 20)
    found = [np.unique(labels[held]).size for held in partition.nodes]
    assert found == [5, 3, 2, 2, 2, 2, 1, 1, 1, 1] == partition.settings["sizes"]
    assert same(partition.nodes, make_partition(graph, "imbalanced", 10).nodes)
    assert make_partition(graph, "imbalanced", sizes=[5, 3, 2, 2, 2, 1, 1, 1, 1, 1, 1]).clients == 11


@pytest.mark.parametrize(
    ("clients", "sizes", "message"),
    [
        (7, None, "for 7 clients give 7 sizes"),
        (3, [1, 2], "2 sizes were given for 3 clients"),
        (None, [], "1 or more"),
        (None, [2, 0], "1 or more"),
        (None, [1.5], "whole numbers"),
        (None, [50, 11], "cannot be cut into 61 parts"),
    ],
)
def test_imbalanced_errors(clients: int | None, sizes: list[int] | None, message: str) -> None:
    with pytest.raises(FedquiltError, match=message):
        make_partition(random_graph(60), "imbalanced", clients, sizes=sizes)
