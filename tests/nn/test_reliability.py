"""Reliability: against a loop over training nodes and their neighbours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.nn import reliability
from fedquilt.nn.random_walks import return_chances
from fedquilt.nn.reliability import class_reliability
from support.clients import dense_adjacency, dense_features
from support.federations import CLASSES, ragged_clients

WALKS = 3


def plain(client: Client, weights: np.ndarray | None = None) -> np.ndarray:
    """As the paper writes it, node by node."""
    e = np.hstack([dense_features(client), return_chances(client, WALKS)]).astype(np.float64)
    a = dense_adjacency(client).astype(np.float64)
    if weights is not None:
        u, v = client.graph.edges
        a[u, v] = a[v, u] = weights / weights.mean()
    out = np.zeros(CLASSES)
    for i in client.training_nodes:
        alike, total = 1.0, 1.0
        for j in np.flatnonzero(a[i]):
            alike += a[i, j] * (e[i] @ e[j]) / (np.linalg.norm(e[i]) * np.linalg.norm(e[j]))
            total += a[i, j]
        out[client.graph.y[i]] += alike / total
    return out


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("entries", [2**22, 30])
def test_it_is_the_mean_likeness_of_training_nodes_and_neighbours(
    sparse: bool, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reliability, "ENTRIES", entries)
    clients = ragged_clients(sparse=sparse)
    found = class_reliability(Cohort(clients), WALKS, CLASSES)
    np.testing.assert_allclose(found, np.stack([plain(client) for client in clients]), rtol=1e-5, atol=1e-5)


def test_edges_count_by_their_weights() -> None:
    client = ragged_clients()[0]
    weights = np.random.default_rng(0).uniform(0.1, 4.0, client.graph.edges.shape[1])
    heavier = replace(client, graph=replace(client.graph, edge_weights=weights))
    found = class_reliability(Cohort([heavier]), WALKS, CLASSES)
    np.testing.assert_allclose(found[0], plain(heavier, weights), rtol=1e-5, atol=1e-5)
    assert not np.allclose(found[0], plain(client), rtol=1e-3)


def test_only_training_labels_are_read() -> None:
    client = ragged_clients()[0]
    y = client.graph.y.copy()
    hidden = np.setdiff1d(np.arange(y.size), client.training_nodes)
    y[hidden] = -1
    blind = replace(client, graph=replace(client.graph, y=y))
    one, two = (class_reliability(Cohort([each]), WALKS, CLASSES) for each in (client, blind))
    assert one.tolist() == two.tolist()
