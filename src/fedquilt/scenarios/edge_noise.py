"""Edge noise: move some edges of a graph at random, to see how robust a method is."""

from __future__ import annotations

import numpy as np

from fedquilt.graphs.edge_weights import undirected_with_weights
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.node_pairs import draw_pairs, number_pairs, pair_count


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
    return pair_count(graph.nodes) - graph.edges.shape[1]


def draw_unjoined(graph: Graph, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw `count` different pairs of nodes that are not joined, each with the same chance: [2, count], u < v."""
    return draw_pairs(graph.nodes, np.sort(number_pairs(graph.edges)), count, rng)
