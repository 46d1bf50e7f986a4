"""Prepare a graph as its protocol says, before it is split: largest component, normalised features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from fedquilt.graphs.arrays import Features
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol


def prepare(graph: Graph, protocol: Protocol) -> Graph:
    """Prepare the graph as the protocol says; the order of nodes does not change."""
    if protocol.largest_component:
        graph = largest_component(graph)
    if protocol.normalise_features:
        graph = replace(graph, x=normalise(graph.x))
    return graph


def largest_component(graph: Graph) -> Graph:
    """Return the subgraph of the largest connected component; of equally large ones, the one with the lowest node."""
    from scipy.sparse.csgraph import connected_components

    count, component = connected_components(graph.adjacency(), directed=False)
    if count == 1:
        return graph
    return graph.subgraph(np.flatnonzero(component == np.bincount(component).argmax()))


def normalise(x: Features) -> Features:
    """Divide each row by the sum of its absolute values; a row of zeros stays zero."""
    sums = np.asarray(abs(x).sum(axis=1), dtype=np.float32).reshape(-1, 1)
    scale = np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)
    if isinstance(x, np.ndarray):
        return (x * scale).astype(np.float32)
    return sp.csr_matrix(x.multiply(scale), dtype=np.float32)
