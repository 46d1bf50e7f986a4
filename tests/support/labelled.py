"""Labels as a method may know them, the operator that spreads them, and clients that lack some."""

from __future__ import annotations

import numpy as np

from fedquilt.cohort.client import Client
from fedquilt.graphs.split import TRAIN, VAL
from support.clients import dense_adjacency
from support.federations import ragged_clients


def known_labels(client: Client) -> np.ndarray:
    """The labels of training nodes, one-hot, and zeros elsewhere: [n, C]."""
    y = np.zeros((client.graph.nodes, client.graph.classes))
    for node in range(client.graph.nodes):
        if client.split[node] == TRAIN and client.graph.y[node] >= 0:
            y[node, client.graph.y[node]] = 1.0
    return y


def gcn_operator(client: Client) -> np.ndarray:
    """D^-1/2 (A + I) D^-1/2, [n, n]."""
    a = dense_adjacency(client) + np.eye(client.graph.nodes)
    return a / np.sqrt(np.outer(a.sum(1), a.sum(1)))


def odd_clients() -> list[Client]:
    """Client 0 trains on no node of class 2, client 1 on one, client 2 on a single node of class 0 and nothing else."""
    clients = ragged_clients((25, 18, 12))
    splits = [client.split.copy() for client in clients]
    for m, keep in ((0, 0), (1, 1), (2, 0)):
        nodes = np.flatnonzero((clients[m].graph.y == 2) & (splits[m] == TRAIN))
        splits[m][nodes[keep:]] = VAL
    assert known_labels(clients[1])[splits[1] == TRAIN][:, 2].sum() >= 1
    splits[2][splits[2] == TRAIN] = VAL
    splits[2][np.flatnonzero(clients[2].graph.y == 0)[0]] = TRAIN
    return [Client(c.id, c.graph, split) for c, split in zip(clients, splits, strict=True)]
