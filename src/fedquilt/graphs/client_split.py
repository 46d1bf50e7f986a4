"""Splits of a graph that belongs to several clients: each client's nodes are split alone, as a site splits its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedquilt.graphs.federated import FederatedGraph
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol
from fedquilt.graphs.split import NONE, Shares, Split, given_split, parse_split

OWN = "own"  # the split of a run whose clients have their own
SITE_SEED = 0  # of the split that an owner without a given one draws: the same in every run


def own_split(graph: Graph) -> np.ndarray:
    """[n] int8: the split of one owner's graph: the given one, else 20/40/40; the same whatever the run's seed."""
    if graph.masks is not None:
        return given_split(graph)
    return Shares(*Protocol().split).draw(graph, SITE_SEED)


@dataclass(frozen=True)
class OwnSplits:
    """Each client's own split, as at a site: the same for every seed and attempt."""

    def draw(self, graph: Graph, seed: int, attempt: int = 0) -> np.ndarray:
        """See `own_split`."""
        return _by_client(graph, own_split)


@dataclass(frozen=True)
class SplitEach:
    """One way to split each client's nodes, drawn for every seed; that of seed 0 is what a site draws that says the same."""

    split: Split

    def draw(self, graph: Graph, seed: int, attempt: int = 0) -> np.ndarray:
        """See `Split.draw`."""
        return _by_client(graph, lambda own: self.split.draw(own, seed, attempt))


def client_splits(text: str) -> Split:
    """How the nodes of each client are split: `OWN`, or what `parse_split` reads."""
    return OwnSplits() if text == OWN else SplitEach(parse_split(text))


def _by_client(graph: Graph, draw: Callable[[Graph], np.ndarray]) -> np.ndarray:
    """[N] int8: the splits of the clients."""
    assert isinstance(graph, FederatedGraph)
    parts = np.full(graph.nodes, NONE, dtype=np.int8)
    for nodes, own in zip(graph.held, graph.targets(), strict=True):
        parts[nodes] = draw(own)
    return parts
