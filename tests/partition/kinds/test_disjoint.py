"""The kind `disjoint`."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.graphs.graph import Graph
from fedquilt.partition.make import make_partition
from fedquilt.partition.metis import cut
from support.partitions import covers_once, graphs, random_graph, same, well_formed


@given(graphs(), st.integers(0, 99), st.data())
def test_each_node_has_one_client(graph: Graph, seed: int, data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, graph.nodes))
    partition = make_partition(graph, "disjoint", clients, seed)
    assert partition.clients == clients
    assert covers_once(partition)
    assert well_formed(partition)


def test_clients_are_the_parts_of_metis() -> None:
    graph = random_graph(60)
    labels = cut(graph, 4)
    partition = make_partition(graph, "disjoint", 4)
    assert same(partition.nodes, [np.flatnonzero(labels == part) for part in range(4)])
    assert partition.settings == {"parts": 4}
