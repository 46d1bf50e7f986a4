"""The kind `overlapping`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.make import make_partition
from fedquilt.partition.metis import cut
from support.partitions import graphs, random_graph, well_formed


@given(graphs(least=5), st.integers(0, 99), st.data())
def test_overlapping_takes_halves_of_parts(graph: Graph, seed: int, data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, graph.nodes // 5))
    partition = make_partition(graph, "overlapping", 5 * parts, seed)
    labels = cut(graph, parts)
    assert partition.clients == 5 * parts
    assert well_formed(partition)
    for client, held in enumerate(partition.nodes):
        assert (labels[held] == client // 5).all()
        assert held.size == max(1, (labels == client // 5).sum() // 2)


def test_overlapping_halves_are_independent() -> None:
    partition = make_partition(random_graph(400, 0.02), "overlapping", 10, 0)
    shared = [np.intersect1d(partition.nodes[0], partition.nodes[other]).size for other in range(1, 5)]
    assert all(30 < count < 70 for count in shared)
    assert np.intersect1d(partition.nodes[0], partition.nodes[5]).size == 0


@pytest.mark.parametrize("clients", [1, 7, 12])
def test_overlapping_needs_a_multiple_of_five(clients: int) -> None:
    with pytest.raises(FedquiltError, match=f"{clients} clients do not work; use a multiple of 5"):
        make_partition(random_graph(60), "overlapping", clients)
