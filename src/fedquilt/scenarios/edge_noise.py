"""Edge noise: move some edges of a graph at random, to see how robust a method is."""

from __future__ import annotations

import numpy as np

from fedquilt.graphs.edge_weights import undirected_with_weights
from fedquilt.graphs.graph import Graph


def with_edge_noise(graph: Graph, chance: float, rng: np.random.Generator) -> Graph:
    """Return a copy of the graph in which each edge is moved with probability `chance`, independently.

    A moved edge joins a random pair of nodes that was not joined before, and no pair is used twice, so the number of edges
    stays the same. It keeps its weight. If there are fewer free pairs than edges to move (a complete graph has none), only
    that many edges move.

    Takes O(E log E) time and O(E) memory.

    Args:
        graph: the graph; it is not changed.
        chance: in 0..1.
        rng: the random generator.
    """
    if chance <= 0:
        return graph
    free = unjoined_count(graph)
    moved = np.flatnonzero(rng.random(graph.edges.shape[1]) < chance)
    if moved.size > free:
        moved = rng.choice(moved, free, replace=False, shuffle=False)
    drawn = draw_unjoined(graph, moved.size, rng)
    edges = np.concatenate([np.delete(graph.edges, moved, axis=1), drawn], axis=1)
    weights = graph.edge_weights
    if weights is not None:
        weights = np.concatenate([np.delete(weights, moved), weights[moved]])
    edges, weights = undirected_with_weights(edges, weights, graph.nodes, graph.name)
    return graph.with_edges(edges, weights)


def unjoined_count(graph: Graph) -> int:
    """How many pairs of nodes are not joined by an edge."""
    return graph.nodes * (graph.nodes - 1) // 2 - graph.edges.shape[1]


def draw_unjoined(graph: Graph, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw `count` different pairs of nodes that are not joined, each with the same chance: [2, count], u < v."""
    free = unjoined_count(graph)
    joined = np.sort(_number(graph.edges))
    unjoined = rng.choice(free, count, replace=False, shuffle=False) if free else np.zeros(0, dtype=np.int64)
    # The k-th free number is k plus the number of taken ones below it.
    unjoined += np.searchsorted(joined - np.arange(joined.size), unjoined, side="right")
    return _pair(unjoined)


def _number(edges: np.ndarray) -> np.ndarray:
    """Number the pairs u < v without gaps in the order (0,1), (0,2), (1,2), (0,3), ...: [2, E] -> [E]."""
    u, v = edges
    return v * (v - 1) // 2 + u


def _pair(numbers: np.ndarray) -> np.ndarray:
    """The reverse of `_number`: [E] -> [2, E]."""
    v = ((1 + np.sqrt(1 + 8 * numbers.astype(np.float64))) / 2).astype(np.int64)
    v -= v * (v - 1) // 2 > numbers  # the root is a float, and may be rounded to the next number
    v += v * (v + 1) // 2 <= numbers
    return np.stack([numbers - v * (v - 1) // 2, v])
