"""Everyone's graph in one place, for methods that are no federation (`Method.pools_graphs`).

Clients whose graphs are pooled share one object, the whole graph as a client of its own, so that it is in memory once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort.client import MEAN_WEIGHT, Client, Pooled
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.graphs.arrays import Features
from fedquilt.graphs.graph import Graph


def pooled_clients(
    clients: Sequence[Client], nodes: Sequence[np.ndarray] | None = None, graph: Graph | None = None
) -> list[Client]:
    """The clients, each with the whole graph beside its own.

    The whole graph has the clients' own edges, and those of `graph` that no client has because the cut went through them. A
    node that several clients hold is one node there, with the neighbours that it has at any of them.

    Args:
        clients: whose graphs are pooled; their features are prepared, all in the same way.
        nodes: [n_m] of each client, the numbers in `graph` of its nodes, which are distinct; None: no node is held twice.
        graph: the graph that was cut; None where clients have graphs of their own, between which there are no edges.
    """
    if any(client.held_out for client in clients):
        raise FedquiltError(
            "The clients' graphs cannot be joined into one, because the task hides some of their edges; choose another method."
        )
    if nodes is None:
        ends = np.cumsum([0, *(client.graph.nodes for client in clients)])
        nodes = [np.arange(first, last) for first, last in pairwise(ends)]
    held, first_copy, flat = np.unique(np.concatenate(list(nodes)), return_index=True, return_inverse=True)
    places = np.split(flat.ravel(), np.cumsum([len(own) for own in nodes])[:-1])
    edges, weights = _edges(clients, places, held, graph)
    some = clients[0].graph
    whole = Graph(
        name="everyone's graph",
        edges=edges,
        x=_stacked(clients)[first_copy],
        y=np.concatenate([client.graph.y for client in clients])[first_copy],
        classes=some.classes,
        class_names=some.class_names,
        feature_names=some.feature_names,
        encoding=some.encoding,
        edge_weights=weights,
        numbers=None
        if some.numbers is None
        else np.concatenate([client.graph.numbers for client in clients])[first_copy],
    )
    split = np.concatenate([client.split for client in clients])[first_copy]
    everyone = replace(clients[0], id=0, graph=whole, split=split, settings={})
    out = [replace(client, pooled=Pooled(everyone, own)) for client, own in zip(clients, places, strict=True)]
    if weights is not None and graph is not None:  # they count relative to the mean of the graph that is trained on
        for client in out:
            client.preset(MEAN_WEIGHT, everyone.mean_weight)
    return out


def whole_cohort(cohort: Cohort) -> Cohort:
    """The graph that a cohort's clients are pooled in, as a cohort of one: the given one, else the union of these clients."""
    whole: Cohort = cohort.once("whole graph", _whole)
    return whole


def whole_places(cohort: Cohort) -> Tensor:
    """[R] int64: the row in `whole_cohort` of each of a cohort's rows, which are pooled; for padding: some row."""
    places: Tensor = cohort.once("places in the whole graph", _places)
    return places


def _whole(cohort: Cohort) -> Cohort:
    members = cohort.members if cohort.members[0].pooled else pooled_clients(cohort.members)
    assert members[0].pooled is not None
    return Cohort([members[0].pooled.whole], cohort.device, cohort.padding)


def _places(cohort: Cohort) -> Tensor:
    return cohort.rows_of([torch.from_numpy(client.pooled.places) for client in cohort.members if client.pooled], 0)


def _edges(
    clients: Sequence[Client], places: Sequence[np.ndarray], held: np.ndarray, graph: Graph | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """The edges of the whole graph, each once with u < v, sorted: [2, E] int64, and their weights where they have any."""
    ends = [own[client.graph.edges] for client, own in zip(clients, places, strict=True)]
    # Owners that brought their own graphs weigh their edges in units of their own.
    weights = [client.edge_weights if graph is None else client.graph.edge_weights for client in clients]
    if graph is not None:
        cut, cut_weights = _cut_edges(graph, places, held)
        ends, weights = [*ends, cut], [*weights, cut_weights]
    sizes = [some.shape[1] for some in ends]
    joined = np.sort(np.concatenate(ends, axis=1), axis=0)
    _, chosen = np.unique(joined[0] * len(held) + joined[1], return_index=True)
    edges = np.ascontiguousarray(joined[:, chosen])
    if all(some is None for some in weights):
        return edges, None
    each = [np.ones(size, np.float32) if some is None else some for some, size in zip(weights, sizes, strict=True)]
    return edges, np.concatenate(each)[chosen]


def _cut_edges(graph: Graph, places: Sequence[np.ndarray], held: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """The graph's edges between two nodes that are held, but by no client together: [2, E] places, and their weights."""
    place = np.full(graph.nodes, -1, dtype=np.int64)
    place[held] = np.arange(len(held))
    u, v = place[graph.edges]
    flat, owner = np.concatenate(list(places)), np.repeat(np.arange(len(places)), [len(own) for own in places])
    holds = sp.csr_matrix((np.ones(flat.size, np.int8), (flat, owner)), shape=(len(held), len(places)))
    both = (u >= 0) & (v >= 0)
    together = np.zeros(u.size, dtype=bool)
    together[both] = np.asarray(holds[u[both]].multiply(holds[v[both]]).sum(1)).ravel() > 0
    cut = both & ~together
    return np.stack([u[cut], v[cut]]), None if graph.edge_weights is None else graph.edge_weights[cut]


def _stacked(clients: Sequence[Client]) -> Features:
    """The features of all clients, one below the other."""
    parts = [client.graph.x for client in clients]
    return sp.vstack(parts, format="csr") if any(map(sp.issparse, parts)) else np.concatenate(parts)
