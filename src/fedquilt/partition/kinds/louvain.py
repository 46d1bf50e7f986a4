"""louvain: Louvain communities, merged at random into a given number of clients."""

from __future__ import annotations

import numpy as np

from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.communities import communities
from fedquilt.partition.groups import groups
from fedquilt.partition.kind import Drawn, register_kind


@register_kind("louvain", "Louvain communities, merged at random into M clients")
def louvain(graph: Graph, clients: int, seed: int) -> Drawn:
    """FED-PUB's Table 6, after FedSage+: Louvain communities dealt to M clients at random, none empty."""
    labels = communities(graph, seed)
    count = int(labels.max()) + 1
    if count < clients:
        raise FedquiltError(
            f"Louvain finds {count} communities in graph '{graph.name}', too few for {clients} clients; "
            "use fewer clients or another kind of partition."
        )
    stream = numpy_stream(seed, "partition", "louvain", "merge")
    # First one community for each client, so that none is empty; the others go to random clients.
    owner = np.concatenate([np.arange(clients), stream.integers(clients, size=count - clients)])
    return groups(stream.permutation(owner)[labels], clients), {"communities": count}
