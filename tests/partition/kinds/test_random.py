"""The kind `random`."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.graphs.graph import Graph
from fedquilt.partition.make import make_partition
from support.partitions import covers_once, graphs, well_formed


@given(graphs(), st.integers(0, 99), st.data())
def test_each_node_has_one_client_and_sizes_are_near_equal(graph: Graph, seed: int, data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, graph.nodes))
    partition = make_partition(graph, "random", clients, seed)
    assert partition.clients == clients
    assert covers_once(partition)
    assert well_formed(partition)
    assert np.ptp(partition.sizes) <= 1
