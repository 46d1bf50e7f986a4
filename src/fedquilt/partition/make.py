"""Make a partition by the name of its kind.

A kind registers itself with the decorator `kind`; nothing else knows the list.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedquilt.errors import FedquiltError, unknown
from fedquilt.graphs.graph import Graph
from fedquilt.partition.fingerprint import fingerprint
from fedquilt.partition.partition import Partition

Drawn = tuple[list[np.ndarray], dict[str, object]]
"""What a kind draws: each client's nodes, and the settings to record."""


@dataclass(frozen=True)
class Kind:
    """One way to make a partition, as it was registered."""

    draw: Callable[..., Drawn]
    description: str
    options: tuple[str, ...]
    needs_clients: bool


_KINDS: dict[str, Kind] = {}


def kind(
    name: str, description: str, *, options: Sequence[str] = (), needs_clients: bool = True
) -> Callable[[Callable[..., Drawn]], Callable[..., Drawn]]:
    """Register a function `(graph, clients, seed, **options) -> (nodes, settings)` as a kind of partition.

    Args:
        name: the kind's name.
        description: one line for help texts.
        options: which of `make_partition`'s options the kind takes; any other is an error.
        needs_clients: whether the number of clients has to be given.
    """

    def register(draw: Callable[..., Drawn]) -> Callable[..., Drawn]:
        _KINDS[name] = Kind(draw, description, tuple(options), needs_clients)
        return draw

    return register


def partition_kinds() -> dict[str, str]:
    """All kinds of partition, each with one line that describes it."""
    return {name: entry.description for name, entry in _KINDS.items()}


def make_partition(
    graph: Graph,
    kind: str,
    clients: int | None = None,
    seed: int = 0,
    *,
    sizes: Sequence[int] | None = None,
    labels: np.ndarray | None = None,
    minimum: int | None = None,
) -> Partition:
    """Cut a graph into clients.

    Args:
        graph: the graph to cut.
        kind: one of `kinds()`.
        clients: M. May be left out where the kind decides it: "imbalanced", "natural", and "louvain-50",
            which does not look at it.
        seed: what all random choices derive from. "disjoint" makes none, and "natural" is given.
        sizes: for "imbalanced", how many METIS parts each client gets.
        labels: for "natural", [N] integers, whose client each node is.
        minimum: for "louvain-50", how many nodes a community needs to become a client (50).
    """
    if kind not in _KINDS:
        raise unknown("partition", kind, _KINDS)
    if graph.nodes == 0:
        raise FedquiltError(f"Graph '{graph.name}' has no nodes to cut; give a graph that has some.")
    chosen = _KINDS[kind]
    given = {"sizes": sizes, "labels": labels, "minimum": minimum}
    options = {name: value for name, value in given.items() if value is not None}
    for name in options:
        if name not in chosen.options:
            raise FedquiltError(f"A partition of kind '{kind}' takes no '{name}'; leave it out.")
    nodes, settings = chosen.draw(graph, _checked_clients(graph, kind, clients), seed, **options)
    return Partition(
        nodes=[np.sort(held).astype(np.int64) for held in nodes],
        kind=kind,
        seed=int(seed),
        graph=graph.name,
        total=graph.nodes,
        fingerprint=fingerprint(graph),
        settings=settings,
    )


def _checked_clients(graph: Graph, kind: str, clients: int | None) -> int | None:
    if clients is None:
        if _KINDS[kind].needs_clients:
            raise FedquiltError(f"A partition of kind '{kind}' needs the number of clients; give it.")
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
