"""Louvain: the communities a graph falls into by itself, however many there are."""

from __future__ import annotations

import random

import numpy as np

from fedquilt.common.random_streams import derive
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph


def communities(graph: Graph, seed: int) -> np.ndarray:
    """Find communities with igraph's multilevel algorithm (Blondel et al., 2008).

    Louvain visits nodes in random order; that order is drawn from the seed, so the same seed finds the same
    communities.

    Returns:
        [N] int64 labels 0..K-1, each of which occurs; an isolated node is a community of its own.
    """
    try:
        import igraph
    except ImportError as error:
        raise FedquiltError(
            "Louvain needs the package igraph; install it (pip install igraph) or use a saved partition instead."
        ) from error

    # Louvain's result depends on the order of the edges; sorted, the same graph gives the same communities.
    order = np.lexsort(graph.edges[::-1])
    network = igraph.Graph(n=graph.nodes, edges=graph.edges[:, order].T)
    igraph.set_random_number_generator(random.Random(derive(seed, "partition", "louvain", "communities")))
    try:
        membership = network.community_multilevel().membership
    finally:
        # igraph cannot be asked which generator it had; Python's `random` is the one it starts with.
        igraph.set_random_number_generator(random)
    return np.unique(np.asarray(membership, dtype=np.int64), return_inverse=True)[1].astype(np.int64)
