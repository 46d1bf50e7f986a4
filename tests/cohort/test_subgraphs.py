"""Parts of a client's graph: the same for every way of cutting it, with one list of neighbours."""

from __future__ import annotations

import numpy as np

from fedquilt.cohort.clusters import Clusters
from fedquilt.cohort.sampled_neighbours import SampledNeighbours
from fedquilt.cohort.subgraphs import Subgraphs
from support.federations import ragged_clients


def test_an_induced_part_is_the_graphs_own() -> None:
    client = ragged_clients((40,))[0]
    nodes = np.array([1, 2, 8, 20, 21, 39])
    part = Subgraphs(client).induced(nodes)
    assert np.array_equal(part.graph.edges, client.graph.subgraph(nodes).edges)
    assert np.array_equal(part.split, client.split[nodes])


def test_the_lists_of_neighbours_are_made_once() -> None:
    client = ragged_clients((40,))[0]
    cuts = (Clusters(client, 10), SampledNeighbours(client, 10, (2,)), Subgraphs(client))
    assert len({id(cut._neighbours) for cut in cuts}) == 1
