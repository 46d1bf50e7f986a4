"""Statistics of a partition: those of FED-PUB's Table 4, and the edges that no client holds.

The paper does not define all of Table 4. We inferred the definitions by cutting the same graphs:

- Edges: the table counts each undirected edge twice (Cora's 10,138 are 5,069 edges). Here an edge counts
  once.
- Clustering coefficient: the mean over a client's nodes of the local coefficient in the client's own
  subgraph, 0 for a node of degree 0 or 1; then the mean over clients.
- Heterogeneity: the text says "median Jensen-Shannon divergence ... between all pairs of subgraphs". The
  printed numbers are the Jensen-Shannon *distance*, the square root of the divergence, with natural
  logarithms (at most 0.833), and the median runs over all M x M ordered pairs, a client with itself
  included. The overlapping cells with ten clients show the latter: two parts make 50 near-zero pairs and 50
  far ones, and the printed 0.297 for Cora is half-way between; without the self-pairs it would be 0.54.
  The disjoint cells cannot tell: another METIS cut alone moves them by up to 0.07.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from fedquilt.graphs.graph import Graph
from fedquilt.partition.partition import Partition
from fedquilt.partition.storage import check_fits

# The number of products in a block of the triangle count, and of distances in a block of label distances. The latter should fit
# in the cache, because each class passes over the block again.
_BLOCK = 4_000_000
_DISTANCES = 65_536
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Statistics:
    """The statistics of one partition.

    Attributes:
        graph: the name of the graph.
        kind: the kind of partition.
        nodes: [M] int64, nodes of each client.
        edges: [M] int64, edges of each client, each once.
        clustering: [M] float64, mean local clustering coefficient of each client's subgraph.
        heterogeneity: median Jensen-Shannon distance between clients' label distributions, as in FED-PUB's
            Table 4; NaN where no client has a label.
        graph_nodes: nodes of the whole graph.
        graph_edges: edges of the whole graph, each once.
        graph_clustering: mean local clustering coefficient of the whole graph.
        unheld: nodes that no client holds.
        missing: edges of the graph that no client holds.
        missing_between: [M, M] symmetric sparse int64: edges with one end in client i and the other in
            client j that no client holds. An edge counts in several cells where its ends have several
            clients, and in none where one of its ends has no client.
    """

    graph: str
    kind: str
    nodes: np.ndarray
    edges: np.ndarray
    clustering: np.ndarray
    heterogeneity: float
    graph_nodes: int
    graph_edges: int
    graph_clustering: float
    unheld: int
    missing: int
    missing_between: sp.csr_matrix

    @property
    def clients(self) -> int:
        """M, the number of clients."""
        return len(self.nodes)

    @property
    def mean_nodes(self) -> float:
        """Mean number of nodes a client."""
        return float(self.nodes.mean())

    @property
    def mean_edges(self) -> float:
        """Mean number of edges a client, each once; twice this is what FED-PUB's Table 4 prints."""
        return float(self.edges.mean())

    @property
    def mean_clustering(self) -> float:
        """Mean over clients of the clustering coefficient."""
        return float(self.clustering.mean())

    @property
    def missing_fraction(self) -> float:
        """Share of the graph's edges that no client holds."""
        return self.missing / self.graph_edges if self.graph_edges else 0.0

    def rows(self) -> list[tuple[str, str, str]]:
        """For printing: a statistic, its value for the whole graph, and its mean over the clients."""
        return [
            ("Clients", "", f"{self.clients:,}"),
            ("Nodes", f"{self.graph_nodes:,}", f"{self.mean_nodes:,.1f}"),
            ("Edges", f"{self.graph_edges:,}", f"{self.mean_edges:,.1f}"),
            ("Clustering coefficient", f"{self.graph_clustering:.3f}", f"{self.mean_clustering:.3f}"),
            ("Heterogeneity", "", f"{self.heterogeneity:.3f}"),
            ("Nodes held by no client", f"{self.unheld:,}", ""),
            ("Edges held by no client", f"{self.missing:,} ({self.missing_fraction:.1%})", ""),
        ]


def statistics(graph: Graph, partition: Partition) -> Statistics:
    """Compute the statistics of a partition. All steps work on whole arrays, so a million nodes are fine."""
    check_fits(partition, graph)
    held, owner = partition.flat()
    clients = partition.clients
    ones = np.ones(held.size, dtype=np.int64)
    membership = sp.csr_matrix((ones, (held, owner)), shape=(graph.nodes, clients))
    first, second = membership[graph.edges[0]], membership[graph.edges[1]]
    shared = first.multiply(second).tocoo()
    copies = np.bincount(shared.row, minlength=graph.edges.shape[1])

    # All clients form one graph. Its nodes are the rows of `flat`; `keys` is used to find the row of (client, node).
    keys = owner * graph.nodes + held
    ends = np.searchsorted(keys, shared.col.astype(np.int64) * graph.nodes + graph.edges[:, shared.row])
    sizes = partition.sizes
    clustering = np.bincount(owner, weights=local_clustering(ends, held.size), minlength=clients) / sizes

    lost = np.flatnonzero(copies == 0)
    between = first[lost].T @ second[lost]
    return Statistics(
        graph=graph.name,
        kind=partition.kind,
        nodes=sizes,
        edges=np.bincount(shared.col, minlength=clients),
        clustering=clustering,
        heterogeneity=_median(label_distances(graph, partition)),
        graph_nodes=graph.nodes,
        graph_edges=int(graph.edges.shape[1]),
        graph_clustering=float(local_clustering(graph.edges, graph.nodes).mean()),
        unheld=int(np.count_nonzero(np.bincount(held, minlength=graph.nodes) == 0)),
        missing=int(lost.size),
        missing_between=(between + between.T).tocsr(),
    )


def local_clustering(edges: np.ndarray, nodes: int) -> np.ndarray:
    """Compute each node's clustering coefficient, the share of pairs of its neighbours that are joined: [nodes] float64.

    Let A be the adjacency matrix, and U the half of it that leads from lower to higher degree. Node v is in
    ``sum_w ((A U) * A)[v, w]`` triangles, because the edge opposite v is in U exactly once. Hubs have few edges in U, so the
    product A U is much smaller than A A.

    Args:
        edges: [2, E], each undirected edge once.
        nodes: how many nodes there are.
    """
    rows, cols = np.concatenate([edges, edges[::-1]], axis=1)
    degree = np.bincount(rows, minlength=nodes)
    rank = np.empty(nodes, dtype=np.int64)
    rank[np.argsort(degree, kind="stable")] = np.arange(nodes)
    up = rank[rows] < rank[cols]
    adjacency = _ones(rows, cols, nodes)
    upward = _ones(rows[up], cols[up], nodes)

    # Process rows in blocks whose products fit in memory.
    work = np.cumsum(adjacency @ np.diff(upward.indptr))
    triangles = np.zeros(nodes, dtype=np.int64)
    start = 0
    while start < nodes:
        done = work[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(work, done + _BLOCK, side="right")))
        block = adjacency[start:stop]
        triangles[start:stop] = np.asarray((block @ upward).multiply(block).sum(axis=1)).ravel()
        start = stop
    pairs = degree * (degree - 1) // 2
    return triangles / np.maximum(pairs, 1)


def label_counts(graph: Graph, partition: Partition) -> np.ndarray:
    """Count a client's nodes with each label: [M, C] int64."""
    held, owner = partition.flat()
    labels = graph.y[held]
    known = labels >= 0
    cells = owner[known] * graph.classes + labels[known]
    return np.bincount(cells, minlength=partition.clients * graph.classes).reshape(partition.clients, graph.classes)


def label_distributions(graph: Graph, partition: Partition) -> np.ndarray:
    """Compute the share of each label among a client's labelled nodes: [M, C] float64, zeros for a client without labels."""
    counts = label_counts(graph, partition)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def label_distances(graph: Graph, partition: Partition) -> np.ndarray:
    """Compute `share_distances` between clients' label distributions: [M, M] float32."""
    return share_distances(label_distributions(graph, partition))


def share_distances(shares: np.ndarray) -> np.ndarray:
    """Compute the Jensen-Shannon distance (natural logarithm) between rows that sum to one: [M, C] -> [M, M] float32.

    ``sqrt(H((p + q) / 2) - (H(p) + H(q)) / 2)`` with H the entropy: 0 where two clients agree, 0.833 where
    they share no label. NaN for a client without labels, whose row is zero.
    """
    columns = np.ascontiguousarray(shares.T)
    entropy = _entropy(columns)
    clients = len(shares)
    distances = np.empty((clients, clients), dtype=np.float32)
    step = max(1, _DISTANCES // clients)
    for start in range(0, clients, step):
        rows, others = slice(start, start + step), slice(start, None)  # the rest follows by symmetry
        mixed = _entropy((column[rows, None] + column[others]) / 2 for column in columns)
        divergence = mixed - (entropy[rows, None] + entropy[others]) / 2
        # Rounding alone can make it negative.
        distances[rows, others] = np.sqrt(np.maximum(divergence, 0))
        distances[others, rows] = distances[rows, others].T
    unlabelled = shares.sum(axis=1) == 0
    distances[unlabelled] = np.nan
    distances[:, unlabelled] = np.nan
    return distances


def label_correlation(similarity: np.ndarray, distances: np.ndarray) -> float | None:
    """Compute Pearson's correlation over pairs of clients, of a similarity with that of labels, 1 - distance.

    Args:
        similarity: [M, M], or [K, M, M] with a matrix for each latent factor, of which the mean is taken.
        distances: [M, M] of `label_distances`; pairs where one is NaN are left out.

    Returns:
        None where there are less than two pairs, or one of the two does not vary by more than rounding.
    """
    found = similarity.mean(0) if similarity.ndim == 3 else similarity
    pairs = np.triu_indices(len(found), 1)
    mine, theirs = found[pairs], 1 - distances[pairs]
    finite = np.isfinite(mine) & np.isfinite(theirs)
    if finite.sum() < 2 or not (_varies(mine[finite]) and _varies(theirs[finite])):
        return None
    return float(np.corrcoef(mine[finite], theirs[finite])[0, 1])


def _varies(values: np.ndarray) -> bool:
    """Whether values differ by more than rounding in single precision, in which similarities are computed."""
    return bool(np.ptp(values) > 1e-6 * np.abs(values).max())


def _median(distances: np.ndarray) -> float:
    """The median of all distances that are not NaN. Reorders the array."""
    unknown = np.isnan(distances)
    known = distances[~unknown] if unknown.any() else distances.reshape(-1)
    return float(np.median(known, overwrite_input=True)) if known.size else float("nan")


def _entropy(shares: Iterable[np.ndarray]) -> np.ndarray:
    """-sum_c p_c log p_c, from an array of p_c for each class c."""
    return -sum((share * np.log(np.maximum(share, _TINY)) for share in shares), start=np.zeros(()))


def _ones(rows: np.ndarray, cols: np.ndarray, nodes: int) -> sp.csr_matrix:
    return sp.csr_matrix((np.ones(rows.size, dtype=np.int32), (rows, cols)), shape=(nodes, nodes))
