"""`Clusters`: one client's graph in METIS clusters, of which a training step takes a few (Cluster-GCN, Chiang et al., 2019).

A client of n nodes that trains on about N of them a step takes S = ceil(n / N) steps an epoch. Its graph is cut into 10 S
clusters, and every epoch deals them anew to its S steps: clusters with training nodes first, one step after the other, so that
each step has some, then the others. A client whose graph fits into one step has one cluster, its whole graph.

Memory: about 30 bytes a node and 8 an edge, beside the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from fedquilt.cohort.client import Client
from fedquilt.cohort.subgraphs import Subgraphs
from fedquilt.common.random_streams import numpy_stream
from fedquilt.graphs import operators
from fedquilt.graphs.split import TRAIN
from fedquilt.partition.metis import cut

A_STEP = 10  # clusters of a step


class Clusters(Subgraphs):
    """The clusters of one client's graph.

    Attributes:
        client: whose.
        parts: how many parts of about as many nodes as a step the graph has.
        steps: S, the training steps of an epoch: as many as parts, or fewer where fewer clusters have training nodes.
        order: [n] the client's nodes, one cluster after the other, in rising order within a cluster.
        ends: [k + 1] where each of the k clusters begins in `order`, and where the last one ends.
        trains: [k] bool, whether a cluster has training nodes.
    """

    def __init__(self, client: Client, nodes: int) -> None:
        """`nodes` is about how many nodes a step takes."""
        graph = client.graph
        super().__init__(client)
        self.parts = -(-graph.nodes // nodes)
        count = 1 if self.parts == 1 else min(A_STEP * self.parts, graph.nodes)
        labels = cut(graph, count).astype(np.int32)
        self.order = np.argsort(labels, kind="stable")
        self.ends = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=count))])
        self.trains = np.bincount(labels[client.split == TRAIN], minlength=count) > 0
        self.steps = max(1, min(self.parts, int(self.trains.sum())))

    # -- the nodes of a step -----------------------------------------------------------------------------------------

    def dealt(self, seed: int, epoch: int) -> list[Callable[[], Client]]:
        """For each step of an epoch what makes the part that it reads, of the clusters that it has."""
        return [partial(self._joined, some) for some in self.cards(seed, epoch)]

    def _joined(self, clusters: np.ndarray) -> Client:
        return self.client if self.parts == 1 else self.induced(self.nodes_of(clusters))

    def cards(self, seed: int, epoch: int) -> list[np.ndarray]:
        """The clusters of each step of an epoch, drawn from the seed, the client and the epoch's number in its training."""
        stream = numpy_stream(seed, "client", self.client.id, "batches", epoch)
        first, rest = np.flatnonzero(self.trains), np.flatnonzero(~self.trains)
        cards = np.concatenate([stream.permutation(first), stream.permutation(rest)])
        cards = cards[: A_STEP * self.steps]  # parts of a graph without training nodes teach nothing, and are left out
        return [cards[step :: self.steps] for step in range(self.steps)]

    def nodes_of(self, clusters: np.ndarray) -> np.ndarray:
        """The nodes of some clusters, in rising order."""
        return np.sort(np.concatenate([self.order[self.ends[c] : self.ends[c + 1]] for c in clusters]))

    def part(self, number: int) -> np.ndarray:
        """The nodes of one of the `parts` into which neighbouring clusters are joined, for what is computed at all nodes."""
        bounds = np.linspace(0, len(self.ends) - 1, self.parts + 1).astype(np.int64)
        return np.sort(self.order[self.ends[bounds[number]] : self.ends[bounds[number + 1]]])

    # -- parts of the graph ------------------------------------------------------------------------------------------

    def surroundings(self, nodes: np.ndarray, features: bool = True) -> tuple[Client, np.ndarray, np.ndarray]:
        """The client with some of its nodes, all their neighbours, and the edges of the former, which are in no order.

        Returns:
            The client (without features, unless they are asked for); [s] its nodes' numbers, rising; [t] the places of the
            given nodes among them.
        """
        owner, entries = self._entries(nodes)
        ends = self._neighbours[1][entries]
        self._place[nodes] = self._place[ends] = 0
        all_nodes = np.flatnonzero(self._place == 0)
        self._place[all_nodes] = np.arange(all_nodes.size)
        inner = self._place[nodes]
        if nodes.size == self.client.graph.nodes:
            self._place[all_nodes] = -1
            return self.client, all_nodes, inner
        u, v = inner[owner], self._place[ends]
        own = np.zeros(all_nodes.size, dtype=bool)
        own[inner] = True
        once = (u < v) | ~own[v]  # an edge between two of the given nodes is met from both of its ends
        self._place[all_nodes] = -1
        u, v = u[once], v[once]
        return self._with(all_nodes, np.minimum(u, v), np.maximum(u, v), entries[once], features), all_nodes, inner

    @cached_property
    def degrees(self) -> np.ndarray:
        """[n] the row sums of A + I, in which edges count with their relative weights."""
        graph = self.client.graph
        return operators.degrees(graph.edges, graph.nodes, self.client.edge_weights)


def clusters_of(client: Client, nodes: int) -> Clusters:
    """The clusters of a client for steps of about so many nodes, made once."""
    found: Clusters = client.once(("clusters", nodes), lambda c: Clusters(c, nodes))
    return found
