"""Louvain communities of a graph; their number follows from the graph."""

from __future__ import annotations

import random

import numpy as np

from fedquilt.common.machine_limits import is_out_of_memory
from fedquilt.common.random_streams import derive
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph


def communities(graph: Graph, seed: int) -> np.ndarray:
    """Find communities with igraph's multilevel algorithm (Blondel et al., 2008).

    Louvain visits nodes in random order. The order is drawn from the seed, so the same seed finds the same communities.

    Returns:
        [N] int64 labels 0..K-1, each of which occurs; an isolated node is a community of its own.
    """
    try:
        import igraph
    except ImportError as error:
        if is_out_of_memory(error):  # it is installed
            raise
        raise FedquiltError(
            "Louvain needs the package igraph; install it (pip install igraph) or use a saved partition instead."
        ) from error

    # The result depends on the order of the edges, so they are sorted first.
    order = np.lexsort(graph.edges[::-1])
    network = igraph.Graph(n=graph.nodes, edges=graph.edges[:, order].T)
    generator = random.Random(derive(seed, "partition", "louvain", "communities"))  # noqa: S311 - a partition, no secret
    igraph.set_random_number_generator(generator)
    try:
        membership = network.community_multilevel().membership
    finally:
        # igraph cannot tell which generator it had; its default is Python's `random`.
        igraph.set_random_number_generator(random)
    return np.unique(np.asarray(membership, dtype=np.int64), return_inverse=True)[1].astype(np.int64)
