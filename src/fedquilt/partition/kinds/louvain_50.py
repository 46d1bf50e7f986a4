"""louvain-50: a client for each large Louvain community."""

from __future__ import annotations

import numpy as np

from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.communities import communities
from fedquilt.partition.groups import groups
from fedquilt.partition.kind import Drawn, Option, register_kind


@register_kind(
    "louvain-50",
    "Louvain communities of 50 nodes or more, the smaller merged into them at random; M is what comes out",
    options=[Option("minimum", int, "the number of nodes a community needs to become a client (50)")],
    clients="found",
)
def louvain_50(graph: Graph, clients: int | None, seed: int, minimum: int = 50) -> Drawn:
    """FedHERO's Louvain partition: a client for each community of at least `minimum` nodes.

    Each smaller community goes whole to one of them, at random. The number of clients follows from the communities; `clients`
    is ignored.
    """
    labels = communities(graph, seed)
    sizes = np.bincount(labels)
    large = np.flatnonzero(sizes >= minimum)
    if not large.size:
        raise FedquiltError(
            f"No Louvain community of graph '{graph.name}' has {minimum} nodes or more (the largest has "
            f"{sizes.max()}); lower the minimum or use another kind of partition."
        )
    owner = numpy_stream(seed, "partition", "louvain-50", "merge").integers(large.size, size=sizes.size)
    owner[large] = np.arange(large.size)
    return groups(owner[labels], large.size), {"communities": int(sizes.size), "minimum": minimum}
