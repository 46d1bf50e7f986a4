"""Many clients laid side by side as one computation. A client is a cohort of one.

The clients' subgraphs form one block-diagonal graph, and a layer's weights are stacked: [M, in, out]. No weight is
shared between blocks, so one backward pass of the summed losses gives each client the gradient it would have computed
alone. How rows lie is in `fedquilt.rows`.

Memory: O(R F) for dense features (R rows), or 16 bytes a non-zero for sparse ones, plus O(R H) activations a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.graphs.graph import Features, Graph
from fedquilt.graphs.split import TEST, TRAIN, VAL
from fedquilt.nn.sparse import SparseMatrix
from fedquilt.partition.partition import Partition
from fedquilt.rows import PADDING_LIMIT, Rows

# Share of non-zeros up to which a product with sparse features beats a dense one (the dense kernel is that much faster).
SPARSE_LIMIT = 0.15


class Keeper:
    """Something constant, with which what methods derive from it can be kept."""

    @cached_property
    def _kept(self) -> dict[Hashable, Any]:
        return {}

    def once(self, name: Hashable, make: Callable[[Self], Any]) -> Any:
        """What a method derives from these constant graphs: made when first asked for by this name, then kept."""
        if name not in self._kept:
            self._kept[name] = make(self)
        return self._kept[name]


@dataclass(frozen=True, eq=False)
class Client(Keeper):
    """What one data owner holds: a graph of its own and which of its nodes are for training, validation and test.

    Attributes:
        id: its number in the federation, 0..M-1; its randomness derives from it.
        graph: its graph.
        split: [n] int8, TRAIN, VAL, TEST or NONE.
    """

    id: int
    graph: Graph
    split: np.ndarray

    @cached_property
    def training_nodes(self) -> np.ndarray:
        """The labelled nodes it trains on, in rising order."""
        return np.flatnonzero((self.split == TRAIN) & (self.graph.y >= 0))

    @cached_property
    def gcn(self) -> sp.csr_matrix:
        """D^-1/2 (A + I) D^-1/2, [n, n]."""
        a = self.graph.adjacency() + sp.eye(self.graph.nodes, dtype=np.float32, format="csr")
        scale = sp.diags(1.0 / np.sqrt(np.asarray(a.sum(axis=1)).ravel()))
        return (scale @ a @ scale).tocsr().astype(np.float32)

    @cached_property
    def mean(self) -> sp.csr_matrix:
        """D^-1 A, [n, n]: the mean over neighbours; a node without any gets zero."""
        a = self.graph.adjacency()
        return (sp.diags(1.0 / np.maximum(np.asarray(a.sum(axis=1)).ravel(), 1.0)) @ a).tocsr().astype(np.float32)


def clients_of(graph: Graph, partition: Partition, split: np.ndarray) -> list[Client]:
    """Cut `graph` into its clients: each holds its nodes, the edges among them, and their part of the split.

    Costs O(nodes + edges) over all clients together, not per client.
    """
    adjacency = graph.adjacency()
    place = np.full(graph.nodes, -1, dtype=np.int64)
    clients = []
    for m, nodes in enumerate(partition.nodes):
        place[nodes] = np.arange(len(nodes))
        rows = adjacency[nodes]
        u = np.repeat(np.arange(len(nodes)), np.diff(rows.indptr))
        v = place[rows.indices]
        once = v > u  # inside the client (others are -1), each undirected edge once
        place[nodes] = -1
        own = Graph(
            name=f"{graph.name}/{m}",
            edges=np.stack([u[once], v[once]]),
            x=graph.x[nodes],
            y=graph.y[nodes],
            classes=graph.classes,
            ids=None if graph.ids is None else graph.ids[nodes],
            class_names=graph.class_names,
        )
        clients.append(Client(m, own, split[nodes]))
    return clients


class FeatureMatrix:
    """Constant features X [R, F] that all clients multiply with weights of their own: X_m W_m, or (P X)_m W_m.

    Sparse: client m's columns are shifted by m F, so the product with all clients' stacked weights is ONE sparse product
    with ``W.reshape(M F, H)``. Dense: one batched product, or one a client.

    A propagation P is constant too. It is multiplied into X once, unless that fills a sparse X up so much that P (X W)
    costs less than (P X) W: on Cora in ten parts 57 thousand non-zeros a product instead of 159 thousand.
    """

    def __init__(self, cohort: Cohort, parts: Sequence[Features], operators: Sequence[sp.csr_matrix] | None = None):
        self.cohort = cohort
        self.sparse: SparseMatrix | None = None
        self.dense: Tensor | None = None
        self.operator: SparseMatrix | None = None
        if operators is not None:
            joined = [p @ x for p, x in zip(operators, parts, strict=True)]
            apart = _filled(parts) + sum(p.nnz for p in operators)
            if _is_sparse(parts) and apart < _filled(joined):
                self.operator = cohort.block_diagonal(operators).to(cohort.device)
            else:
                parts = joined
        if _is_sparse(parts):
            self.sparse = SparseMatrix(cohort.stack_blocks([sp.csr_matrix(part) for part in parts])).to(cohort.device)
        else:
            arrays = [np.asarray(sp.csr_matrix(part).toarray() if sp.issparse(part) else part) for part in parts]
            self.dense = cohort.rows_of([torch.from_numpy(a.astype(np.float32, copy=False)) for a in arrays], 0.0)

    def __matmul__(self, weight: Tensor) -> Tensor:
        """X_m W_m (or P_m X_m W_m) for every client: weight [M, F, H] -> [R, H]."""
        if self.sparse is not None:
            product = self.sparse @ weight.reshape(-1, weight.shape[-1])
        else:
            assert self.dense is not None
            product = self.cohort.multiply(self.dense, weight)
        return product if self.operator is None else self.operator @ product


def _filled(parts: Sequence[Features]) -> int:
    return sum(int(np.count_nonzero(part.data if sp.issparse(part) else part)) for part in parts)


def _is_sparse(parts: Sequence[Features]) -> bool:
    return _filled(parts) <= SPARSE_LIMIT * sum(part.shape[0] * part.shape[1] for part in parts)


class TrainingRows(Rows):
    """The training nodes of a cohort as rows of their own: where the loss looks, and so all the last layers need compute.

    Attributes:
        index: [T] the cohort's row of each of these rows (padding: some row of the same client).
        real: the rows that are no padding, in the order of `Cohort.train`.
        position: the *node's* place within its client, so that dropout draws what it would draw over all nodes.
    """

    def __init__(self, cohort: Cohort) -> None:
        own = [client.training_nodes for client in cohort.members]
        # These rows are few, so that padding costs little, and counts of random draws differ a lot between small clients.
        super().__init__([len(nodes) for nodes in own], cohort.device, padding=2.0)
        self._cohort, self._own = cohort, own
        places = self.rows_of([torch.from_numpy(nodes) for nodes in own], -1)
        self.real = torch.nonzero(places >= 0).ravel()
        self.position = places.clamp_min(0)
        self.index = self.position + torch.from_numpy(cohort.start).to(cohort.device)[self.client]

    def operator(self, blocks: Sequence[sp.csr_matrix]) -> SparseMatrix:
        """These rows of the clients' operators [n_m, n_m]: [T, R]."""
        chosen = [block[nodes] for block, nodes in zip(blocks, self._own, strict=True)]
        return SparseMatrix(self.diagonal(chosen, self._cohort.start.tolist(), self._cohort.rows)).to(self.device)

    @cached_property
    def gcn(self) -> SparseMatrix:
        """These rows of the cohort's GCN operator: [T, R]."""
        return self.operator([c.gcn for c in self._cohort.members])

    @cached_property
    def mean(self) -> SparseMatrix:
        """These rows of the cohort's mean over neighbours: [T, R]."""
        return self.operator([c.mean for c in self._cohort.members])


class Cohort(Rows, Keeper):
    """M clients as one block-diagonal graph on one device; its rows are the clients' nodes.

    Attributes:
        ids: [M] int64, the clients' numbers in the federation.
        features, classes: widths of the input and the output.
        y: [R] labels (-1 where there is none); train, val, test: row indices of the labelled nodes of each part.
    """

    def __init__(self, clients: Sequence[Client], device: torch.device | str = "cpu", padding: float = PADDING_LIMIT):
        if not clients:
            raise ValueError("a cohort needs at least one client")
        super().__init__([c.graph.nodes for c in clients], torch.device(device), padding)
        self.members = list(clients)
        self.padding = padding
        self.ids = torch.tensor([c.id for c in clients], dtype=torch.int64)
        self.features = clients[0].graph.features
        self.classes = clients[0].graph.classes
        self.y = self.rows_of([torch.from_numpy(c.graph.y) for c in clients], -1)
        split = self.rows_of([torch.from_numpy(c.split) for c in clients], -1)
        labelled = self.y >= 0
        self.train, self.val, self.test = (
            torch.nonzero((split == part) & labelled).ravel() for part in (TRAIN, VAL, TEST)
        )

    def take(self, chosen: Sequence[int]) -> Cohort:
        """The cohort of some of its clients, by their places in this cohort."""
        return Cohort([self.members[m] for m in chosen], self.device, self.padding)

    @cached_property
    def training(self) -> TrainingRows:
        """The training nodes as rows of their own."""
        return TrainingRows(self)

    def stack_blocks(self, blocks: Sequence[sp.csr_matrix]) -> sp.csr_matrix:
        """Blocks [n_m, K] side by side: [R, M K], client m's block in its rows and in columns m K .. m K + K - 1."""
        width = blocks[0].shape[1]
        return self.diagonal(blocks, [m * width for m in range(len(blocks))], width * len(blocks))

    # -- operators, each made when first asked for -----------------------------------------------------------------

    def block_diagonal(self, blocks: Sequence[sp.csr_matrix]) -> SparseMatrix:
        """Square blocks [n_m, n_m] on the diagonal of one [R, R] matrix."""
        return SparseMatrix(self.diagonal(blocks, self.start.tolist(), self.rows)).to(self.device)

    @cached_property
    def gcn(self) -> SparseMatrix:
        """The block-diagonal GCN operator D^-1/2 (A + I) D^-1/2, [R, R]."""
        return self.block_diagonal([c.gcn for c in self.members])

    @cached_property
    def mean(self) -> SparseMatrix:
        """The block-diagonal mean over neighbours D^-1 A, [R, R]."""
        return self.block_diagonal([c.mean for c in self.members])

    @cached_property
    def x(self) -> FeatureMatrix:
        """The raw features X."""
        return FeatureMatrix(self, [c.graph.x for c in self.members])

    @cached_property
    def smoothed(self) -> FeatureMatrix:
        """The GCN-smoothed features (A X), constant."""
        return FeatureMatrix(self, [c.graph.x for c in self.members], [c.gcn for c in self.members])

    @cached_property
    def mean_x(self) -> FeatureMatrix:
        """The neighbour-averaged features (D^-1 A) X, constant."""
        return FeatureMatrix(self, [c.graph.x for c in self.members], [c.mean for c in self.members])

    @cached_property
    def edges(self) -> Tensor:
        """[2, E'] int64 rows: both directions of every edge and a self-loop for every node, sorted by target."""
        parts = []
        for first, client in zip(self.start, self.members, strict=True):
            loops = np.arange(client.graph.nodes)
            pairs = np.concatenate([client.graph.edges, client.graph.edges[::-1], np.stack([loops, loops])], axis=1)
            parts.append(pairs[:, np.argsort(pairs[1], kind="stable")] + first)
        return torch.from_numpy(np.concatenate(parts, axis=1)).to(self.device)

    # -- means over a client's rows ----------------------------------------------------------------------------------

    def counts(self, index: Tensor) -> Tensor:
        """How many of the rows in `index` each client has: [M] float32."""
        return torch.bincount(self.client[index], minlength=self.clients).to(torch.float32)

    @cached_property
    def train_count(self) -> Tensor:
        """[M] float32: training nodes of each client."""
        return self.counts(self.train)

    @cached_property
    def train_weight(self) -> Tensor:
        """[T] float32: 1 / (number of the client's training nodes) for each training row, so that a sum is a mean."""
        return 1.0 / self.train_count[self.client[self.train]]

    def mean_over(self, values: Tensor, index: Tensor) -> Tensor:
        """Each client's mean of `values` [T], which belong to rows `index` [T]: [M]; NaN where it has no such row."""
        total = torch.zeros(self.clients, device=values.device).index_add_(0, self.client[index], values.float())
        return total / self.counts(index)

    @cached_property
    def node_count(self) -> Tensor:
        """[M] int64: nodes of each client."""
        return torch.tensor(self.sizes, device=self.device)

    @cached_property
    def nodes(self) -> Tensor:
        """The rows that are no padding."""
        return torch.nonzero(self.position < self.node_count[self.client]).ravel()

    def node_mean(self, rows: Tensor) -> Tensor:
        """Each client's mean over its nodes: [R, H] -> [M, H]."""
        total = torch.zeros(self.clients, rows.shape[1], device=rows.device, dtype=rows.dtype)
        total.index_add_(0, self.client[self.nodes], rows[self.nodes])
        return total / self.node_count.unsqueeze(1)
