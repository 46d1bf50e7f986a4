"""The kinds of partition, one function each."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.louvain import communities
from fedquilt.partition.make import Drawn, kind
from fedquilt.partition.metis import cut

COPIES = 5
"""Overlapping: how many clients are drawn from one METIS part."""

FEDPUB_SIZES = (5, 3, 2, 2, 2, 2, 1, 1, 1, 1)
"""Imbalanced: how many METIS parts each client gets unless told; see `imbalanced`."""


def groups(labels: np.ndarray, count: int) -> list[np.ndarray]:
    """For each label 0..count-1 the sorted indices that carry it."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(labels, minlength=count))[:-1])


@kind("disjoint", "METIS cuts the graph into M parts, one a client")
def disjoint(graph: Graph, clients: int, seed: int) -> Drawn:
    """FED-PUB's non-overlapping scenario: METIS into M parts. No choice is random, so all seeds agree."""
    return groups(cut(graph, clients), clients), {"parts": clients}


@kind("overlapping", "METIS cuts M/5 parts; five clients each hold a random half of one part")
def overlapping(graph: Graph, clients: int, seed: int) -> Drawn:
    """FED-PUB's overlapping scenario: five independent random halves of the nodes of each of M/5 METIS parts.

    Clients 5p .. 5p+4 are drawn from part p. A half is rounded down, but a client holds at least one node.
    """
    if clients % COPIES:
        raise FedquiltError(
            f"An overlapping partition draws {COPIES} clients from each part, so {clients} clients do not "
            f"work; use a multiple of {COPIES}."
        )
    parts = clients // COPIES
    nodes = []
    for part, members in enumerate(groups(cut(graph, parts), parts)):
        half = max(1, members.size // 2)
        for client in range(COPIES * part, COPIES * (part + 1)):
            # A stream a client: no client's nodes depend on how many clients came before it.
            stream = numpy_stream(seed, "partition", "overlapping", client)
            nodes.append(stream.choice(members, half, replace=False))
    return nodes, {"parts": parts, "copies": COPIES}


@kind("louvain", "Louvain communities, merged at random into M clients")
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
    # One community for each client first, so that none is empty; chance alone decides about the rest.
    owner = np.concatenate([np.arange(clients), stream.integers(clients, size=count - clients)])
    return groups(stream.permutation(owner)[labels], clients), {"communities": count}


@kind(
    "louvain-50",
    "Louvain communities of 50 nodes or more, the smaller merged into them at random; M is what comes out",
    options=("minimum",),
    needs_clients=False,
)
def louvain_50(graph: Graph, clients: int | None, seed: int, minimum: int = 50) -> Drawn:
    """FedHERO's Louvain partition: a client for each community of at least `minimum` nodes.

    Each smaller community goes whole to one of them, at random. The number of clients is what comes out;
    `clients` is not looked at.
    """
    if minimum < 1:
        raise FedquiltError(f"A community of at least {minimum} nodes means nothing; give a minimum of 1 or more.")
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
    return groups(owner[labels], large.size), {"communities": int(sizes.size), "minimum": int(minimum)}


@kind("random", "nodes uniformly at random into M parts of near-equal size")
def uniform(graph: Graph, clients: int, seed: int) -> Drawn:
    """FED-PUB's Table 7: nodes dealt uniformly at random; sizes differ by one node at most."""
    order = numpy_stream(seed, "partition", "random").permutation(graph.nodes)
    return np.array_split(order, clients), {}


@kind(
    "imbalanced",
    "METIS parts merged at random into clients of unequal size (5, 3, 2, 2, 2, 2, 1, 1, 1, 1 of 20 parts)",
    options=("sizes",),
    needs_clients=False,
)
def imbalanced(graph: Graph, clients: int | None, seed: int, sizes: Sequence[int] | None = None) -> Drawn:
    """FED-PUB's Figure 12: METIS into sum(sizes) parts; client i gets sizes[i] of them, chosen at random.

    The paper cuts into 20, merges "five, three, two, two, and two" and calls the result ten clients; but
    those 14 parts and the 6 left single make eleven. The default keeps both the 20 parts and the ten clients
    by merging one pair more: 5, 3, 2, 2, 2, 2, 1, 1, 1, 1. The literal reading is `sizes=[5, 3, 2, 2, 2, 1,
    1, 1, 1, 1, 1]`. Which parts are merged the paper does not say; here chance decides, by the seed.
    """
    if sizes is None:
        if clients not in (None, len(FEDPUB_SIZES)):
            raise FedquiltError(
                f"An imbalanced partition has {len(FEDPUB_SIZES)} clients unless told otherwise; for "
                f"{clients} clients give {clients} sizes."
            )
        sizes = FEDPUB_SIZES
    try:
        shares = [operator.index(size) for size in sizes]
    except TypeError as error:
        raise FedquiltError(f"The sizes must be whole numbers, not {list(sizes)}; give parts per client.") from error
    if not shares or min(shares) < 1:
        raise FedquiltError(f"Each size must be 1 or more, not {shares}; give the number of parts of each client.")
    if clients not in (None, len(shares)):
        raise FedquiltError(
            f"{len(shares)} sizes were given for {clients} clients; give one size for each client, or only the sizes."
        )
    parts = sum(shares)
    labels = cut(graph, parts)
    stream = numpy_stream(seed, "partition", "imbalanced")
    owner = stream.permutation(np.repeat(np.arange(len(shares)), shares))
    return groups(owner[labels], len(shares)), {"parts": parts, "sizes": shares}


@kind("natural", "clients given by a label for each node", options=("labels",), needs_clients=False)
def natural(graph: Graph, clients: int | None, seed: int, labels: np.ndarray | None = None) -> Drawn:
    """Clients known beforehand: nodes that share a label are one client, in the order of the labels."""
    if labels is None:
        raise FedquiltError("A natural partition needs 'labels', whose client each node is; give them.")
    owner = np.asarray(labels)
    if owner.shape != (graph.nodes,) or owner.dtype.kind not in "iu":
        raise FedquiltError(
            f"The labels of a natural partition must be {graph.nodes} whole numbers, one for each node of "
            f"graph '{graph.name}', not {owner.dtype} of shape {owner.shape}; give such an array."
        )
    if owner.min() < 0:
        raise FedquiltError("Each node of a natural partition needs a client; give a label of 0 or more to each node.")
    names, numbered = np.unique(owner, return_inverse=True)
    if clients not in (None, names.size):
        raise FedquiltError(
            f"The labels name {names.size} clients, not {clients}; leave the number of clients out or correct it."
        )
    return groups(numbered, names.size), {}
