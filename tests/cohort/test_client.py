"""What a client holds, its operators, and cutting a graph into clients."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.cohort.client import Client, clients_of
from fedquilt.graphs.graph import Graph
from fedquilt.partition.partition import Partition
from support.clients import (
    client_lists,
    dense_features,
    gcn_operator,
    mean_operator,
    random_edges,
    random_features,
)

seeds = st.integers(0, 2**31)


@given(clients=client_lists())
def test_a_clients_own_operators(clients: list[Client]) -> None:
    for client in clients:
        assert client.gcn.dtype == client.mean.dtype == np.float32
        assert np.allclose(client.gcn.toarray(), gcn_operator(client), atol=1e-6)
        assert np.allclose(client.mean.toarray(), mean_operator(client), atol=1e-6)


@st.composite
def cut_graphs(draw: st.DrawFn) -> tuple[Graph, Partition, np.ndarray]:
    """A graph and a partition of some or all of its nodes: disjoint, or with nodes that several hold."""
    rng = np.random.default_rng(draw(seeds))
    nodes, clients = draw(st.integers(1, 40)), draw(st.integers(1, 5))
    edges = random_edges(rng, nodes, draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])))
    graph = Graph(
        name="whole",
        # Edges in any order, as a user's own file may have them.
        edges=edges[:, rng.permutation(edges.shape[1])],
        x=random_features(rng, nodes, 3, 0.5, draw(st.booleans())),
        y=rng.integers(-1, 3, nodes),
        classes=3,
        ids=np.array([f"n{i}" for i in range(nodes)]) if draw(st.booleans()) else None,
        class_names=("a", "b", "c") if draw(st.booleans()) else None,
    )
    if draw(st.booleans()):
        kind, owner = "disjoint", rng.integers(0, clients, nodes)
        held = [np.flatnonzero(owner == m) for m in range(clients)]
    else:
        kind = "overlapping"
        held = [np.flatnonzero(rng.random(nodes) < 0.5) for _ in range(clients)]
    held = [own if len(own) else np.array([0]) for own in held]
    return graph, Partition(held, kind, 0, "whole", nodes, ""), rng.integers(-1, 3, nodes).astype(np.int8)


def edge_set(graph: Graph) -> set[tuple[int, int]]:
    return {(int(u), int(v)) for u, v in graph.edges.T}


@settings(max_examples=60)
@given(cut=cut_graphs())
def test_clients_hold_the_induced_subgraphs(cut: tuple[Graph, Partition, np.ndarray]) -> None:
    graph, partition, split = cut
    clients = clients_of(graph, partition, split)
    assert [client.id for client in clients] == list(range(partition.clients))
    for client, nodes in zip(clients, partition.nodes, strict=True):
        own, expected = client.graph, graph.subgraph(nodes)
        assert own.edges.dtype == np.int64
        assert own.edges.shape == expected.edges.shape
        assert edge_set(own) == edge_set(expected)
        assert sp.issparse(own.x) == sp.issparse(graph.x)
        assert np.array_equal(dense_features(client), dense_features(Client(0, expected, split)))
        assert np.array_equal(own.y, expected.y)
        assert own.classes == expected.classes
        assert own.class_names == expected.class_names
        assert (own.ids is None) == (graph.ids is None)
        assert own.ids is None or np.array_equal(own.ids, expected.ids)
        assert np.array_equal(client.split, split[nodes])


@settings(max_examples=60)
@given(cut=cut_graphs())
def test_clients_are_what_they_would_be_one_by_one(cut: tuple[Graph, Partition, np.ndarray]) -> None:
    """To the order of their edges."""
    graph, partition, split = cut
    adjacency = graph.adjacency()
    for client, nodes in zip(clients_of(graph, partition, split), partition.nodes, strict=True):
        own = sp.triu(adjacency[nodes][:, nodes], k=1, format="csr")
        own.sort_indices()
        u = np.repeat(np.arange(len(nodes)), np.diff(own.indptr))
        assert np.array_equal(client.graph.edges, np.stack([u, own.indices]))
        if sp.issparse(graph.x):
            for part in ("indptr", "indices", "data"):
                assert np.array_equal(getattr(client.graph.x, part), getattr(graph.x[nodes], part))


def test_every_edge_inside_a_client_is_someones_and_no_other() -> None:
    """Disjoint clients: the edges kept are those whose ends have one owner."""
    rng = np.random.default_rng(0)
    edges, owner = random_edges(rng, 60, 0.2), rng.integers(0, 4, 60)
    graph = Graph("whole", edges, np.ones((60, 1), np.float32), np.zeros(60, np.int64), 1)
    held = [np.flatnonzero(owner == m) for m in range(4)]
    clients = clients_of(graph, Partition(held, "disjoint", 0, "whole", 60, ""), np.zeros(60, np.int8))
    kept = {
        (int(nodes[u]), int(nodes[v]))
        for client, nodes in zip(clients, held, strict=True)
        for u, v in client.graph.edges.T
    }
    assert kept == {(u, v) for u, v in edge_set(graph) if owner[u] == owner[v]}
