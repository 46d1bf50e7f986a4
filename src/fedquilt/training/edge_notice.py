"""Say what a method makes of the weights of edges, before it trains."""

from __future__ import annotations

import logging

from fedquilt.graphs.edge_weights import weights_in_words
from fedquilt.graphs.graph import Graph
from fedquilt.methods.base import Method

_log = logging.getLogger(__name__)


def announce_edge_weights(method: Method, graph: Graph) -> None:
    """Log that the weights of a graph's edges are used, or warn that they are not; nothing where edges have none."""
    if unused := unused_weights(method, graph):
        _log.warning("%s", unused)
    elif graph.edge_weights is not None:
        said = weights_in_words(graph.edge_weights)
        _log.info("Edges have weights (%s); each counts relative to the mean of its client.", said)


def unused_weights(method: Method, graph: Graph) -> str | None:
    """A sentence where edges have weights that the method, with its settings, does not use."""
    why = method.ignores_edge_weights()
    return f"Edge weights are not used by {method.title}: {why}." if why and graph.edge_weights is not None else None
