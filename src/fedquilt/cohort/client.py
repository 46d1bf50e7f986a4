"""`Client`, and a function that cuts a graph into clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedquilt.cohort.memo import Memo
from fedquilt.errors import FedquiltError
from fedquilt.graphs import operators
from fedquilt.graphs.arrays import Features
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.mapped_features import changed, some_rows
from fedquilt.graphs.preparation import Preparation
from fedquilt.graphs.split import TRAIN
from fedquilt.partition.partition import Partition

# The name under which a client's mean edge weight is stored with it, and saved with its model.
MEAN_WEIGHT = "mean edge weight"


@dataclass(frozen=True, eq=False)
class Client(Memo):
    """The data of one owner: its own graph, and the split of its nodes into training, validation and test nodes.

    Attributes:
        id: its number in the federation, 0..M-1; its random numbers derive from it.
        graph: its graph.
        split: [n] int8, TRAIN, VAL, TEST or NONE; a node without a target is NONE.
        held_out: arrays that the task removed from the graph, such as edges to predict, by names that the task chooses.
        settings: the settings of the method that this client has in place of the others' (`Method.client_settings`).
        pooled: the graph of all clients, and this one's place in it, for a method that has it (`Method.pools_graphs`).
    """

    id: int
    graph: Graph
    split: np.ndarray
    held_out: Mapping[str, np.ndarray] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    pooled: Pooled | None = None

    @cached_property
    def training_nodes(self) -> np.ndarray:
        """The nodes it trains on, in rising order."""
        return np.flatnonzero(self.split == TRAIN)

    @property
    def mean_weight(self) -> float:
        """The mean of its edges' weights, by which they are divided; where a model predicts, that of its training graph."""
        mean: float = self.once(MEAN_WEIGHT, lambda c: mean_weight(c.graph.edge_weights))
        return mean

    @cached_property
    def edge_weights(self) -> np.ndarray | None:
        """[E] float32: its edges' weights divided by their mean, so that only ratios matter; None: all count the same.

        A self-loop, and an edge of a client without weights, weigh one: what an edge weighs on average.
        """
        raw, count = self.graph.edge_weights, self.graph.edges.shape[1]
        if raw is None:
            return None
        if raw.shape != (count,):
            raise FedquiltError(
                f"{self.graph.name} has {raw.size} edge weights but {count} edges; choose edges with Graph.some_edges, which "
                "takes their weights along."
            )
        return (raw.astype(np.float64) / self.mean_weight).astype(np.float32)

    @cached_property
    def gcn(self) -> sp.csr_matrix:
        """D^-1/2 (A + I) D^-1/2, [n, n]."""
        return operators.gcn(self.graph.edges, self.graph.nodes, np.arange(self.graph.nodes), self.edge_weights)

    @cached_property
    def mean(self) -> sp.csr_matrix:
        """D^-1 A, [n, n]: the mean over neighbours, weighted; a node without any gets zero."""
        return operators.neighbour_mean(self.graph.edges, self.graph.nodes, self.edge_weights)


@dataclass(frozen=True, eq=False)
class Pooled:
    """The graph of all clients, and where one client's nodes are in it (`fedquilt.cohort.pool`).

    Attributes:
        whole: the nodes that any client holds, each once, with all edges among them and the split of all of them, as client 0.
        places: [n] int64, the number in `whole` of each of the client's nodes.
    """

    whole: Client
    places: np.ndarray


def mean_weight(weights: np.ndarray | None) -> float:
    """The mean of weights [E]; one where there are none."""
    return float(weights.mean(dtype=np.float64)) if weights is not None and weights.size else 1.0


def joined_weights(clients: Sequence[Client]) -> np.ndarray | None:
    """The edge weights of several clients one after the other, each relative to its client's mean; None: none has weights."""
    if all(client.edge_weights is None for client in clients):
        return None
    each = [np.ones(c.graph.edges.shape[1], np.float32) if c.edge_weights is None else c.edge_weights for c in clients]
    return np.concatenate(each)


def clients_of(graph: Graph, partition: Partition, split: np.ndarray) -> list[Client]:
    """Cut `graph` into its clients: each holds its nodes, the edges among them, and their part of the split.

    Takes O(nodes + edges) over all clients together, not per client. The data of all clients is gathered once; each client
    has a view of its part, not a copy. Where clients hold all nodes one after the other, it is a view of the graph's own data.
    """
    held, owner = partition.flat()
    ends = np.concatenate([[0], np.cumsum(partition.sizes)])
    u, v, weights = _induced(graph, partition, held)
    cuts = np.searchsorted(owner[u], np.arange(partition.clients + 1))
    edges = np.stack([u, v]) - ends[owner[u]]
    in_place = held.size == graph.nodes and bool((np.diff(held, prepend=-1) == 1).all())
    x, y, parts = graph.x if in_place else some_rows(graph.x, held), graph.y[held], split[held]
    numbers = None if graph.numbers is None else graph.numbers[held]
    ids = None if graph.ids is None else graph.ids[held]
    clients = []
    for m in range(partition.clients):
        mine = slice(ends[m], ends[m + 1])
        own = Graph(
            name=f"{graph.name}/{m}",
            edges=edges[:, cuts[m] : cuts[m + 1]],
            x=_some_rows(x, mine),
            y=y[mine],
            classes=graph.classes,
            ids=None if ids is None else ids[mine],
            class_names=graph.class_names,
            feature_names=graph.feature_names,
            encoding=graph.encoding,
            edge_weights=None if weights is None else weights[cuts[m] : cuts[m + 1]],
            numbers=None if numbers is None else numbers[mine],
        )
        clients.append(Client(m, own, parts[mine]))
    return clients


def prepared_clients(clients: Sequence[Client], preparations: Sequence[Preparation]) -> list[Client]:
    """The clients with their features prepared, each by its own preparation."""
    return [
        client
        if how.kind == "none"
        else replace(client, graph=replace(client.graph, x=changed(client.graph.x, how.apply)))
        for client, how in zip(clients, preparations, strict=True)
    ]


def _induced(graph: Graph, partition: Partition, held: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the edges inside clients, sorted, as indices u < v into `Partition.flat`: two arrays [E'] int64; and weights."""
    rows = operators.adjacency(graph.edges, graph.nodes, graph.edge_weights)[held]
    place = np.full(graph.nodes, -1, dtype=np.int64)
    v = np.empty(rows.nnz, dtype=np.int64)
    first = 0
    for nodes in partition.nodes:
        last = first + len(nodes)
        place[nodes] = np.arange(first, last)
        entries = slice(rows.indptr[first], rows.indptr[last])
        v[entries] = place[rows.indices[entries]]
        place[nodes] = -1
        first = last
    u = np.repeat(np.arange(held.size), np.diff(rows.indptr))
    once = v > u  # inside the client (others are -1), each undirected edge once
    return u[once], v[once], None if graph.edge_weights is None else rows.data[once]


def _some_rows(x: Features, rows: slice) -> Features:
    """Return consecutive rows without a copy."""
    if isinstance(x, np.ndarray):
        return x[rows]
    first, last = x.indptr[rows.start], x.indptr[rows.stop]
    indptr = x.indptr[rows.start : rows.stop + 1] - first
    return sp.csr_matrix((x.data[first:last], x.indices[first:last], indptr), shape=(indptr.size - 1, x.shape[1]))
