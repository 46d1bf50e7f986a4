"""The Homophily Confidence Score: what it is where the answer is known, and that it reads training labels only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedquilt.cohort.client import Client
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import TEST, TRAIN
from fedquilt.nn.homophily_confidence import OWN, STEPS, homophily_confidence
from support.clients import gcn_operator
from support.federations import ragged_clients


def ring_of_groups(same: bool, groups: int = 4, size: int = 8) -> Client:
    """Cliques of one class each, or complete bipartite graphs between two classes; every node is a training node."""
    edges, y = [], []
    for group in range(groups):
        first = group * size
        own = np.full(size, group % 2) if same else np.arange(size) % 2
        u, v = np.triu_indices(size, k=1)
        kept = np.ones(len(u), dtype=bool) if same else own[u] != own[v]
        edges.append(np.stack([u[kept], v[kept]]) + first)
        y.append(own)
    nodes = groups * size
    x = np.ones((nodes, 2), dtype=np.float32)
    graph = Graph("groups", np.concatenate(edges, axis=1), x, np.concatenate(y).astype(np.int64), 2)
    return Client(0, graph, np.full(nodes, TRAIN, dtype=np.int8))


def test_one_where_neighbours_are_alike_and_low_where_they_differ() -> None:
    assert homophily_confidence(ring_of_groups(same=True)) == 1.0
    assert homophily_confidence(ring_of_groups(same=False)) < 0.1


def test_it_equals_a_loop_over_nodes() -> None:
    for client in ragged_clients():
        a, known = gcn_operator(client), np.flatnonzero(client.split == TRAIN)
        half, seen = {}, 0
        for label in range(3):
            for node in known[client.graph.y[known] == label]:
                half[node], seen = seen % 2, seen + 1
        right = 0.0
        for node in known:
            first = np.zeros((client.graph.nodes, 3))
            for other in known:
                if half[other] != half[node]:
                    first[other, client.graph.y[other]] = 1
            y = first
            for _ in range(STEPS):
                y = OWN * first + (1 - OWN) * a @ y
            right += float(y[node].argmax() == client.graph.y[node]) if y[node].any() else 1 / 3
        assert homophily_confidence(client) == pytest.approx(right / len(known))


def test_hidden_labels_change_nothing() -> None:
    for client in ragged_clients():
        y = client.graph.y.copy()
        hidden = client.split != TRAIN
        y[hidden] = np.where(y[hidden] >= 0, (y[hidden] + 1) % 3, -1)
        other = replace(client, graph=replace(client.graph, y=y))
        assert homophily_confidence(other) == homophily_confidence(client)


def test_a_guess_where_no_label_reaches() -> None:
    graph = Graph("apart", np.zeros((2, 0), dtype=np.int64), np.ones((4, 1), dtype=np.float32), np.arange(4) % 2, 2)
    assert homophily_confidence(Client(0, graph, np.full(4, TRAIN, dtype=np.int8))) == 0.5
    assert homophily_confidence(Client(0, graph, np.full(4, TEST, dtype=np.int8))) == 0.5
