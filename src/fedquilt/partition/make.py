"""Cut a graph into clients by the name of a partition kind."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.fingerprint import fingerprint
from fedquilt.partition.kind import KINDS, Kind
from fedquilt.partition.partition import Partition


def make_partition(graph: Graph, kind: str, clients: int | None = None, seed: int = 0, **options: Any) -> Partition:
    """Cut a graph into clients.

    Args:
        graph: the graph to cut.
        kind: one of `partition_kinds()`.
        clients: M. May be left out where the kind decides it.
        seed: the seed of all random choices.
        options: the kind's own options, such as `sizes` of "imbalanced" or `labels` of "natural". None means not given.
    """
    chosen = KINDS.find(kind)
    if graph.nodes == 0:
        raise FedquiltError(f"Graph '{graph.name}' has no nodes to cut; give a graph that has some.")
    validated = chosen.validate_options(options)
    nodes, settings = chosen.draw(graph, _validate_clients(graph, chosen, clients), seed, **validated)
    return Partition(
        nodes=[np.sort(held).astype(np.int64) for held in nodes],
        kind=kind,
        seed=int(seed),
        graph=graph.name,
        total=graph.nodes,
        fingerprint=fingerprint(graph),
        settings=settings,
    )


def _validate_clients(graph: Graph, kind: Kind, clients: int | None) -> int | None:
    if clients is None:
        if kind.clients == "given":
            raise FedquiltError(f"A partition of kind '{kind.name}' needs the number of clients; give it.")
        return None
    try:
        clients = operator.index(clients)
    except TypeError as error:
        raise FedquiltError(f"The number of clients must be a whole number, not {clients!r}; give one.") from error
    if clients < 1:
        raise FedquiltError(f"A partition needs at least one client, not {clients}; give a larger number.")
    if clients > graph.nodes:
        raise FedquiltError(
            f"Graph '{graph.name}' has {graph.nodes} nodes, too few for {clients} clients; use fewer clients."
        )
    return clients
