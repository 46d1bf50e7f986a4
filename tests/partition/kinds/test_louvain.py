"""The kind `louvain`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.communities import communities
from fedquilt.partition.make import make_partition
from support.partitions import cliques, covers_once, graphs, well_formed


@given(graphs(), st.integers(0, 99), st.data())
def test_louvain_merges_whole_communities(graph: Graph, seed: int, data: st.DataObject) -> None:
    found = communities(graph, seed)
    clients = data.draw(st.integers(1, int(found.max()) + 1))
    partition = make_partition(graph, "louvain", clients, seed)
    assert partition.clients == clients
    assert covers_once(partition)
    assert well_formed(partition)
    assert sum(np.unique(found[held]).size for held in partition.nodes) == found.max() + 1


def test_louvain_with_too_few_communities() -> None:
    with pytest.raises(FedquiltError, match="finds 3 communities in graph 'cliques', too few for 4 clients"):
        make_partition(cliques(10, 10, 10), "louvain", 4)
