"""`Subgraphs`: the parts of one client's graph that training steps read, as clients of their own.

Memory: about 8 bytes an edge and 4 a node, beside the graph.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedquilt.cohort.client import MEAN_WEIGHT, Client
from fedquilt.graphs import operators
from fedquilt.graphs.graph import Graph


class Subgraphs:
    """Parts of one client's graph.

    Attributes:
        client: whose.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._place = np.full(client.graph.nodes, -1, dtype=np.int32)  # scratch

    def induced(self, nodes: np.ndarray) -> Client:
        """The client with some of its nodes, in rising order, and the edges among them."""
        if nodes.size == self.client.graph.nodes:
            return self.client
        owner, entries = self._entries(nodes)
        self._place[nodes] = np.arange(nodes.size)
        u, v = owner, self._place[self._neighbours[1][entries]]
        inside = v > u  # the others are -1, or the same edge from its other end
        self._place[nodes] = -1
        return self._with(nodes, u[inside], v[inside], entries[inside])

    @property
    def _neighbours(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Each node's neighbours as CSR: offsets [n + 1], nodes [2 E] int32, and the numbers of the edges where weighted."""
        found: tuple[np.ndarray, np.ndarray, np.ndarray | None] = self.client.once("neighbours", _neighbours_of)
        return found

    def _entries(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The entries of some nodes in `_neighbours`: the place in `nodes` of the node of each, and its number."""
        starts = self._neighbours[0]
        lengths = starts[nodes + 1] - starts[nodes]
        owner = np.repeat(np.arange(nodes.size), lengths)
        first = np.cumsum(lengths) - lengths
        return owner, np.arange(owner.size) - first[owner] + starts[nodes][owner]

    def _with(self, nodes: np.ndarray, u: np.ndarray, v: np.ndarray, entries: np.ndarray, x: bool = True) -> Client:
        """The client with these nodes and edges, whose weights are relative to the mean of all of its edges."""
        whole, numbers = self.client.graph, self._neighbours[2]
        weights = None if numbers is None or whole.edge_weights is None else whole.edge_weights[numbers[entries]]
        graph = Graph(
            name=whole.name,
            edges=np.stack([u, v]).astype(np.int64),
            x=whole.x[nodes] if x else np.zeros((nodes.size, 0), dtype=np.float32),
            y=whole.y[nodes],
            classes=whole.classes,
            edge_weights=weights,
        )
        part = replace(self.client, graph=graph, split=self.client.split[nodes])
        if weights is not None:
            part.preset(MEAN_WEIGHT, self.client.mean_weight)
        return part


def _neighbours_of(client: Client) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    matrix = operators.numbered_adjacency(client.graph.edges, client.graph.nodes)
    return (
        matrix.indptr.astype(np.int64),
        matrix.indices,
        None if client.graph.edge_weights is None else matrix.data - 1,
    )
