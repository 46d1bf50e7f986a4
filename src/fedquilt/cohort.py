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

from fedquilt.graphs import operators
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
        return operators.gcn(self.graph.edges, self.graph.nodes, np.arange(self.graph.nodes))

    @cached_property
    def mean(self) -> sp.csr_matrix:
        """D^-1 A, [n, n]: the mean over neighbours; a node without any gets zero."""
        return operators.neighbour_mean(self.graph.edges, self.graph.nodes)


def clients_of(graph: Graph, partition: Partition, split: np.ndarray) -> list[Client]:
    """Cut `graph` into its clients: each holds its nodes, the edges among them, and their part of the split.

    Costs O(nodes + edges) over all clients together, not per client. What they hold is gathered once for all of them; a
    client has its piece of that, not a copy.
    """
    held, owner = partition.flat()
    ends = np.concatenate([[0], np.cumsum(partition.sizes)])
    u, v = _induced(graph, partition, held)
    cuts = np.searchsorted(owner[u], np.arange(partition.clients + 1))
    edges = np.stack([u, v]) - ends[owner[u]]
    x, y, parts = graph.x[held], graph.y[held], split[held]
    ids = None if graph.ids is None else graph.ids[held]
    clients = []
    for m in range(partition.clients):
        mine = slice(ends[m], ends[m + 1])
        own = Graph(
            name=f"{graph.name}/{m}",
            edges=edges[:, cuts[m] : cuts[m + 1]],
            x=_some_rows(x, mine),
            y=y[mine],
            classes=graph.classes,
            ids=None if ids is None else ids[mine],
            class_names=graph.class_names,
            feature_names=graph.feature_names,
        )
        clients.append(Client(m, own, parts[mine]))
    return clients


def _induced(graph: Graph, partition: Partition, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The edges inside clients as places u < v in `Partition.flat`, sorted: two [E'] int64."""
    rows = graph.adjacency()[held]
    place = np.full(graph.nodes, -1, dtype=np.int64)
    v = np.empty(rows.nnz, dtype=np.int64)
    first = 0
    for nodes in partition.nodes:
        last = first + len(nodes)
        place[nodes] = np.arange(first, last)
        entries = slice(rows.indptr[first], rows.indptr[last])
        v[entries] = place[rows.indices[entries]]
        place[nodes] = -1
        first = last
    u = np.repeat(np.arange(held.size), np.diff(rows.indptr))
    once = v > u  # inside the client (others are -1), each undirected edge once
    return u[once], v[once]


def _some_rows(x: Features, rows: slice) -> Features:
    """Consecutive rows without a copy."""
    if isinstance(x, np.ndarray):
        return x[rows]
    first, last = x.indptr[rows.start], x.indptr[rows.stop]
    indptr = x.indptr[rows.start : rows.stop + 1] - first
    return sp.csr_matrix((x.data[first:last], x.indices[first:last], indptr), shape=(indptr.size - 1, x.shape[1]))


class FeatureMatrix:
    """Constant features X [R, F] that all clients multiply with weights of their own: X_m W_m, or (P X)_m W_m.

    Sparse: client m's columns are shifted by m F, so the product with all clients' stacked weights is ONE sparse product
    with ``W.reshape(M F, H)``. Dense: one batched product, or one a client.

    A propagation P is constant too. It is multiplied into X once, unless that fills a sparse X up so much that P (X W)
    costs less than (P X) W: on Cora in ten parts 57 thousand non-zeros a product instead of 159 thousand.
    """

    def __init__(self, cohort: Cohort, parts: Sequence[Features], operator: SparseMatrix | None = None) -> None:
        """Features X_m [n_m, F], a part a client, and P [R, R]."""
        self.cohort = cohort
        self.sparse: SparseMatrix | None = None
        self.dense: Tensor | None = None
        self.operator: SparseMatrix | None = None
        few = SPARSE_LIMIT * sum(cohort.sizes) * parts[0].shape[1]
        x = _laid(cohort, parts)
        if operator is not None:
            p = _as_scipy(operator)
            joined = p @ x
            if _filled(x) <= few and _filled(x) + p.nnz < _filled(joined):
                self.operator = operator
            else:
                x = joined
        if _filled(x) <= few:
            self.sparse = SparseMatrix(cohort.stack(sp.csr_matrix(x))).to(cohort.device)
        else:
            self.dense = torch.from_numpy(x if isinstance(x, np.ndarray) else x.toarray()).to(cohort.device)

    def __matmul__(self, weight: Tensor) -> Tensor:
        """X_m W_m (or P_m X_m W_m) for every client: weight [M, F, H] -> [R, H]."""
        if self.sparse is not None:
            product = self.sparse @ weight.reshape(-1, weight.shape[-1])
        else:
            assert self.dense is not None
            product = self.cohort.multiply(self.dense, weight)
        return product if self.operator is None else self.operator @ product


def _laid(cohort: Cohort, parts: Sequence[Features]) -> Features:
    """The clients' features in their rows: [R, F] float32, sparse where any client's are."""
    if any(sp.issparse(part) for part in parts):
        blocks = [part if sp.issparse(part) else sp.csr_matrix(part) for part in parts]
        return cohort.diagonal(blocks, [0] * len(blocks), blocks[0].shape[1]).astype(np.float32, copy=False)
    tensors = [torch.from_numpy(np.asarray(part, dtype=np.float32)) for part in parts]
    laid: np.ndarray = cohort.laid(tensors, 0.0).numpy()
    return laid


def _filled(x: Features) -> int:
    return int(np.count_nonzero(x if isinstance(x, np.ndarray) else x.data))


def _as_scipy(matrix: SparseMatrix) -> sp.csr_matrix:
    """The same numbers for products on the host; on the CPU no copy."""
    csr = matrix.forward
    parts = (part.cpu().numpy() for part in (csr.values(), csr.col_indices(), csr.crow_indices()))
    return sp.csr_matrix(tuple(parts), shape=matrix.shape)


class TrainingRows(Rows):
    """The training nodes of a cohort as rows of their own: where the loss looks, and so all the last layers need compute.

    Attributes:
        index: [T] the cohort's row of each of these rows (padding: some row of the same client).
        real: the rows that are no padding, in the order of `Cohort.train`.
        position: the *node's* place within its client, so that dropout draws what it would draw over all nodes.
    """

    def __init__(self, cohort: Cohort) -> None:
        split, y = (np.concatenate(all_) for all_ in zip(*((c.split, c.graph.y) for c in cohort.members), strict=True))
        trains = (split == TRAIN) & (y >= 0)
        owner = np.repeat(np.arange(cohort.clients), cohort.sizes)[trains]
        # These rows are few, so that padding costs little, and counts of random draws differ a lot between small clients.
        super().__init__(np.bincount(owner, minlength=cohort.clients).tolist(), cohort.device, padding=2.0)
        self._cohort, self._rows = cohort, cohort.taken[trains]
        self.real = torch.from_numpy(self.taken).to(cohort.device)
        position = np.zeros(self.rows, dtype=np.int64)
        position[self.taken] = self._rows - cohort.start[owner]
        self.position = torch.from_numpy(position).to(cohort.device)
        self.index = self.position + torch.from_numpy(cohort.start).to(cohort.device)[self.client]

    def chosen(self, matrix: sp.csr_matrix) -> SparseMatrix:
        """These rows of one of the cohort's matrices: [R, R] -> [T, R]."""
        rows = matrix[self._rows]
        lengths = np.diff(rows.indptr)
        return SparseMatrix(self.padded(rows.data, rows.indices, lengths, self._cohort.rows)).to(self.device)

    @cached_property
    def gcn(self) -> SparseMatrix:
        """These rows of the cohort's GCN operator: [T, R]."""
        return self.chosen(_as_scipy(self._cohort.gcn))

    @cached_property
    def mean(self) -> SparseMatrix:
        """These rows of the cohort's mean over neighbours: [T, R]."""
        return self.chosen(_as_scipy(self._cohort.mean))


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

    def stack(self, rows: sp.csr_matrix) -> sp.csr_matrix:
        """Clients' rows side by side: [R, K] -> [R, M K], those of client m in columns m K .. m K + K - 1."""
        width = rows.shape[1]
        lengths = np.diff(rows.indptr)
        shift = width * np.repeat(np.arange(self.clients), self.spans)
        columns = rows.indices + np.repeat(shift, lengths)
        return sp.csr_matrix((rows.data, columns, rows.indptr), shape=(self.rows, width * self.clients))

    # -- operators, each made when first asked for -----------------------------------------------------------------

    @cached_property
    def gcn(self) -> SparseMatrix:
        """The block-diagonal GCN operator D^-1/2 (A + I) D^-1/2, [R, R]."""
        return SparseMatrix(operators.gcn(self._joined(), self.rows, self.taken)).to(self.device)

    @cached_property
    def mean(self) -> SparseMatrix:
        """The block-diagonal mean over neighbours D^-1 A, [R, R]."""
        return SparseMatrix(operators.neighbour_mean(self._joined(), self.rows)).to(self.device)

    def _joined(self) -> np.ndarray:
        """Every edge of every client once, as rows: [2, E] int64."""
        edges = [c.graph.edges for c in self.members]
        return np.concatenate(edges, axis=1) + np.repeat(self.start, [each.shape[1] for each in edges])

    @cached_property
    def x(self) -> FeatureMatrix:
        """The raw features X."""
        return FeatureMatrix(self, [c.graph.x for c in self.members])

    @cached_property
    def smoothed(self) -> FeatureMatrix:
        """The GCN-smoothed features (A X), constant."""
        return FeatureMatrix(self, [c.graph.x for c in self.members], self.gcn)

    @cached_property
    def mean_x(self) -> FeatureMatrix:
        """The neighbour-averaged features (D^-1 A) X, constant."""
        return FeatureMatrix(self, [c.graph.x for c in self.members], self.mean)

    @cached_property
    def edges(self) -> Tensor:
        """[2, E'] int64 rows: both directions of every edge and a self-loop for every node, sorted by target."""
        a = operators.adjacency(self._joined(), self.rows)
        neighbours = np.diff(a.indptr)[self.taken]
        target = np.repeat(self.taken, neighbours + 1)
        source = target.copy()  # a target's last edge is its loop; before it come those from its neighbours
        neighbour = np.ones(target.size, dtype=bool)
        neighbour[np.cumsum(neighbours + 1) - 1] = False
        source[neighbour] = a.indices
        return torch.from_numpy(np.stack([source, target])).to(self.device)

    # -- means over a client's rows ----------------------------------------------------------------------------------

    def counts(self, index: Tensor) -> Tensor:
        """How many of the rows in `index` each client has: [M] float32; counted once for train, val, test and nodes."""
        known = next((name for name in ("train", "val", "test", "nodes") if index is getattr(self, name)), None)
        counted: Tensor = self._count(index) if known is None else self.once(known, lambda c: c._count(index))
        return counted

    def _count(self, index: Tensor) -> Tensor:
        return torch.bincount(self.client[index], minlength=self.clients).to(torch.float32)

    @cached_property
    def train_count(self) -> Tensor:
        """[M] float32: training nodes of each client."""
        return self.counts(self.train)

    @cached_property
    def train_weight(self) -> Tensor:
        """[T] float32: 1 / (number of the client's training nodes) for each training row, so that a sum is a mean."""
        return 1.0 / self.train_count[self.client[self.train]]

    def sum_over(self, values: Tensor, index: Tensor) -> Tensor:
        """Each client's sum of `values` [T], which belong to rows `index` [T] in rising order: [M]."""
        if values.is_cuda:  # a segment a client; adding to few places from everywhere would queue up there
            lengths = self.counts(index).long()
            return torch.segment_reduce(values.float(), "sum", lengths=lengths, unsafe=True, initial=0.0)
        return torch.zeros(self.clients).index_add_(0, self.client[index], values.float())

    def mean_over(self, values: Tensor, index: Tensor) -> Tensor:
        """Each client's mean of `values` [T], which belong to rows `index` [T] in rising order; NaN where it has none: [M]."""
        return self.sum_over(values, index) / self.counts(index)

    @cached_property
    def node_count(self) -> Tensor:
        """[M] int64: nodes of each client."""
        return torch.tensor(self.sizes, device=self.device)

    @cached_property
    def first_row(self) -> Tensor:
        """[M] int64: each client's first row, as `start`, on the device."""
        return torch.from_numpy(self.start).to(self.device)

    @cached_property
    def nodes(self) -> Tensor:
        """The rows that are no padding."""
        return torch.nonzero(self.position < self.node_count[self.client]).ravel()

    @cached_property
    def _is_node(self) -> Tensor:
        """[R, 1] whether a row is no padding."""
        return (self.position < self.node_count[self.client]).unsqueeze(1)

    def node_mean(self, rows: Tensor) -> Tensor:
        """Each client's mean over its nodes: [R, H] -> [M, H]."""
        if self.length is not None:
            total = torch.where(self._is_node, rows, 0.0).view(self.clients, self.length, -1).sum(1)
        else:
            total = torch.zeros(self.clients, rows.shape[1], device=rows.device, dtype=rows.dtype)
            total.index_add_(0, self.client, rows)
        return total / self.node_count.unsqueeze(1)
