"""Everyone's graph in one place: each node and each edge once, the edges that the cut went through included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.cohort.client import Client, clients_of
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.pool import pooled_clients, whole_cohort, whole_places
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.partition import Partition
from support.clients import random_edges, random_features
from support.federations import ragged_clients


def cut(seed: int, overlapping: bool, sparse: bool = False, weighted: bool = False) -> tuple[Graph, list, list[Client]]:
    """A graph, the nodes of its clients, and the clients; some nodes are held by nobody."""
    rng = np.random.default_rng(seed)
    edges = random_edges(rng, 30, 0.15)
    weights = (rng.random(edges.shape[1]) + 0.5).astype(np.float32) if weighted else None
    x, y = random_features(rng, 30, 4, 0.5, sparse), rng.integers(0, 3, 30)
    graph = Graph("whole", edges, x, y, 3, edge_weights=weights)
    owner = rng.integers(-1, 3, 30)
    nodes = [np.flatnonzero((owner == m) | (overlapping & (rng.random(30) < 0.4))) for m in range(3)]
    nodes = [own if len(own) else np.array([m]) for m, own in enumerate(nodes)]
    partition = Partition(nodes, "some", 0, "whole", 30, "")
    return graph, nodes, clients_of(graph, partition, rng.integers(-1, 3, 30).astype(np.int8))


def dense(x: object) -> np.ndarray:
    return x.toarray() if sp.issparse(x) else np.asarray(x)


@given(st.integers(0, 1000), st.booleans(), st.booleans(), st.booleans())
def test_the_whole_is_what_the_graph_induces_on_all_held_nodes(
    seed: int, overlapping: bool, sparse: bool, weighted: bool
) -> None:
    graph, nodes, clients = cut(seed, overlapping, sparse, weighted)
    found = pooled_clients(clients, nodes, graph)
    whole = found[0].pooled.whole
    assert all(client.pooled.whole is whole for client in found)  # in memory once
    expected = graph.subgraph(np.unique(np.concatenate(nodes)))
    assert np.array_equal(whole.graph.edges, expected.edges)
    assert np.array_equal(dense(whole.graph.x), dense(expected.x))
    assert np.array_equal(whole.graph.y, expected.y)
    if weighted:
        assert np.array_equal(whole.graph.edge_weights, expected.edge_weights)
        assert {client.mean_weight for client in found} == {whole.mean_weight}
    for client in found:
        assert np.array_equal(dense(whole.graph.x)[client.pooled.places], dense(client.graph.x))
        assert np.array_equal(whole.split[client.pooled.places], client.split)
    cohort = Cohort(found)
    assert whole_cohort(cohort).rows == expected.nodes
    assert np.array_equal(whole_places(cohort)[cohort.nodes], np.concatenate([c.pooled.places for c in found]))


def test_edges_that_moved_at_a_client_are_moved_in_the_whole() -> None:
    graph, nodes, clients = cut(1, overlapping=False)
    inside = clients[0].graph.edges
    clients[0] = replace(clients[0], graph=clients[0].graph.with_edges(inside[:, 1:], None))
    whole = pooled_clients(clients, nodes, graph)[0].pooled.whole
    before = pooled_clients(cut(1, overlapping=False)[2], nodes, graph)[0].pooled.whole
    assert whole.graph.edges.shape[1] == before.graph.edges.shape[1] - 1


def test_graphs_of_different_owners_are_side_by_side() -> None:
    clients = ragged_clients((8, 5), sparse=True)
    whole = pooled_clients(clients)[1].pooled.whole
    joined = np.concatenate([clients[0].graph.edges, clients[1].graph.edges + 8], axis=1)
    assert np.array_equal(whole.graph.edges, joined)
    assert whole_cohort(Cohort(clients)).members[0].graph.nodes == 13


def test_owners_weigh_their_edges_in_units_of_their_own() -> None:
    clients = ragged_clients((8, 5))
    weighted = []
    for client, unit in zip(clients, (1.0, 1e6), strict=True):
        weights = unit * np.arange(1, client.graph.edges.shape[1] + 1, dtype=np.float32)
        weighted.append(replace(client, graph=replace(client.graph, edge_weights=weights)))
    whole = pooled_clients(weighted)[0].pooled.whole
    assert np.allclose(whole.edge_weights, np.concatenate([client.edge_weights for client in weighted]))


def test_a_task_that_hides_edges_cannot_be_pooled() -> None:
    clients = [replace(client, held_out={"edges": np.zeros((2, 1))}) for client in ragged_clients((8, 5))]
    with pytest.raises(FedquiltError, match="the task hides some of their edges"):
        pooled_clients(clients)
