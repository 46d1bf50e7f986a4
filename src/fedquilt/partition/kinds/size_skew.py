"""size-skew: parts of a graph whose sizes are drawn from a Dirichlet distribution."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.dirichlet import ALPHA, ALPHA_OPTION, log_dirichlet
from fedquilt.partition.groups import groups
from fedquilt.partition.kind import Drawn, Option, register_kind
from fedquilt.partition.metis import cut

FEWEST = 10  # nodes of a client, where the graph has enough
_SMALL = 50  # nodes below which a client is cut out of the largest one: METIS cuts parts of very unequal sizes badly


@register_kind(
    "size-skew",
    "METIS cuts M parts whose sizes are drawn from Dir(alpha); small alpha: a few large clients and many small ones",
    min_train=1,
    options=[
        ALPHA_OPTION,
        Option("min_nodes", int, f"the nodes that each client has at least ({FEWEST}, or half of an even share)"),
    ],
)
def size_skew(graph: Graph, clients: int, seed: int, alpha: float = ALPHA, min_nodes: int | None = None) -> Drawn:
    """Client m has about k + s_m (N - k M) nodes, where s ~ Dir(alpha, ..., alpha) and k is `min_nodes`.

    METIS cuts the parts of larger clients, within a few per cent of their sizes. Clients of less than 50 nodes, or a tenth of
    an even share, are then cut out of the largest part: the nodes nearest to a random one. Without `min_nodes` k is 10, or half
    of an even share where that is less. Splits are drawn again until each client has a training node.
    """
    least = max(1, min(FEWEST, graph.nodes // (2 * clients))) if min_nodes is None else min_nodes
    if least * clients > graph.nodes:
        raise FedquiltError(
            f"Graph '{graph.name}' has {graph.nodes} nodes, too few for {clients} clients of {least} nodes; ask for fewer."
        )
    rng = numpy_stream(seed, "partition", "size-skew")
    shares = np.exp(log_dirichlet(rng, np.full(clients, alpha)))
    sizes = least + np.floor(shares * (graph.nodes - least * clients)).astype(np.int64)
    largest = int(sizes.argmax())
    sizes[largest] += graph.nodes - sizes.sum()
    small = sizes < max(_SMALL, 2 * least, graph.nodes / (10 * clients))
    small[largest] = False
    wanted = np.where(small, 0, sizes)
    wanted[largest] += sizes[small].sum()
    large = np.flatnonzero(~small)
    labels = large[cut(graph, large.size, wanted[large] / graph.nodes)]
    adjacency = graph.adjacency()
    for client in np.flatnonzero(small):
        donor = int(np.bincount(labels, minlength=clients).argmax())
        labels[_ball(rng, adjacency, np.flatnonzero(labels == donor), int(sizes[client]))] = client
    return groups(labels, clients), {"alpha": alpha, "min_nodes": least}


def _ball(rng: np.random.Generator, adjacency: sp.csr_matrix, nodes: np.ndarray, size: int) -> np.ndarray:
    """`size` of the nodes: the nearest to a random one, within these nodes; more such balls where no path leads on."""
    free = np.zeros(adjacency.shape[0], dtype=bool)
    free[nodes] = True
    starts, found = iter(rng.permutation(nodes)), np.zeros(0, dtype=np.int64)
    front = found
    while found.size < size:
        if not front.size:
            front = np.array([next(node for node in starts if free[node])])
        front = front[: size - found.size]
        free[front] = False
        found = np.concatenate([found, front])
        near = np.unique(adjacency[front].indices)
        front = near[free[near]]
    return found
