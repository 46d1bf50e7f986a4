"""With which classes the nodes of a client are joined: homophily, and how it differs between clients (FedHERO's appendix)."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from fedquilt.graphs.graph import Graph
from fedquilt.partition.partition import Partition


def node_homophily(graph: Graph) -> float:
    """Mean over nodes of the share of a node's neighbours that have its label (Pei et al., 2020; FedHERO's Table 7).

    Unlabelled nodes, and nodes without a labelled neighbour, do not count. NaN where no node counts.
    """
    u, v = _labelled(graph)
    neighbours = np.bincount(u, minlength=graph.nodes)
    alike = np.bincount(u, weights=graph.y[u] == graph.y[v], minlength=graph.nodes)
    counted = neighbours > 0
    return float((alike[counted] / neighbours[counted]).mean()) if counted.any() else float("nan")


def neighbour_distribution(graph: Graph) -> np.ndarray:
    """Share of class b among the neighbours of the nodes of class a: [C, C], a row of NaN where class a has no neighbour."""
    u, v = _labelled(graph)
    cells = graph.y[u] * graph.classes + graph.y[v]
    counts = np.bincount(cells, minlength=graph.classes**2).reshape(graph.classes, graph.classes).astype(float)
    totals = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, totals, out=np.full_like(counts, np.nan), where=totals > 0)


def neighbour_distance(graph: Graph, partition: Partition) -> float:
    """How differently two clients' nodes of one class are joined: 0 alike, 1 with no class in common.

    The total variation distance between `neighbour_distribution`s, mean over the classes that both have and over all pairs of
    clients; NaN where no two clients have a class in common.
    """
    found = [neighbour_distribution(graph.subgraph(nodes)) for nodes in partition.nodes]
    apart = [np.abs(a - b).sum(axis=1) / 2 for a, b in combinations(found, 2)]
    shared = [row[~np.isnan(row)] for row in apart]
    means = [row.mean() for row in shared if row.size]
    return float(np.mean(means)) if means else float("nan")


def client_homophily(graph: Graph, partition: Partition) -> np.ndarray:
    """`node_homophily` of each client's subgraph: [M]."""
    return np.array([node_homophily(graph.subgraph(nodes)) for nodes in partition.nodes])


def _labelled(graph: Graph) -> np.ndarray:
    """Both directions of each edge whose ends have labels: [2, E']."""
    both = np.concatenate([graph.edges, graph.edges[::-1]], axis=1)
    return both[:, (graph.y[both] >= 0).all(axis=0)]
