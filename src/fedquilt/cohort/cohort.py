"""`Cohort`: many clients computed together as one block-diagonal graph. A single client is a cohort of one.

The clients' subgraphs form one block-diagonal graph, and a layer's weights are stacked: [M, in, out]. No weight is
shared between blocks, so one backward pass of the summed losses gives each client the gradient it would have computed
alone. `fedquilt.cohort.rows` describes the layout of rows.

Memory: O(R F) for dense features (R rows), or 16 bytes per non-zero for sparse ones, plus O(R H) activations per layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort.client import Client, joined_weights
from fedquilt.cohort.features import FeatureMatrix, as_scipy
from fedquilt.cohort.memo import Memo
from fedquilt.cohort.rows import PADDING_LIMIT, Rows
from fedquilt.cohort.sparse import SparseMatrix
from fedquilt.graphs import operators
from fedquilt.graphs.arrays import Features
from fedquilt.graphs.split import NONE, TEST, TRAIN, VAL


class TrainingRows(Rows):
    """The training nodes of a cohort as separate rows. The loss needs only them, so the last layers compute only them.

    Attributes:
        index: [T] the number of each row in the cohort (for padding: some row of the same client).
        real: the rows that are not padding, in the order of `Cohort.train`.
        position: the *node's* position within its client, so that dropout draws the same as over all nodes.
    """

    def __init__(self, cohort: Cohort) -> None:
        trains = np.concatenate([client.split for client in cohort.members]) == TRAIN
        owner = np.repeat(np.arange(cohort.clients), cohort.sizes)[trains]
        # More padding is allowed: there are few such rows, and their number differs a lot between small clients.
        super().__init__(np.bincount(owner, minlength=cohort.clients).tolist(), cohort.device, padding=2.0)
        self._cohort, self._rows = cohort, cohort.taken[trains]
        self.real = torch.from_numpy(self.taken).to(cohort.device)
        position = np.zeros(self.rows, dtype=np.int64)
        position[self.taken] = self._rows - cohort.start[owner]
        self.position = torch.from_numpy(position).to(cohort.device)
        self.index = self.position + torch.from_numpy(cohort.start).to(cohort.device)[self.client]

    @property
    def equal_length(self) -> None:
        """None: positions are those of nodes."""
        return None

    def chosen(self, matrix: sp.csr_matrix) -> SparseMatrix:
        """Select these rows of one of the cohort's matrices: [R, R] -> [T, R]."""
        rows = matrix[self._rows]
        lengths = np.diff(rows.indptr)
        return SparseMatrix(self.padded(rows.data, rows.indices, lengths, self._cohort.rows)).to(self.device)

    def features(self, x: Features) -> FeatureMatrix:
        """These rows of constant features that lie in the cohort's rows: [R, F] -> [T, F]."""
        if isinstance(x, np.ndarray):
            placed = np.zeros((self.rows, x.shape[1]), x.dtype)
            placed[self.taken] = x[self._rows]
            return FeatureMatrix.of_rows(self, placed)
        rows = x[self._rows]
        return FeatureMatrix.of_rows(self, self.padded(rows.data, rows.indices, np.diff(rows.indptr), x.shape[1]))

    @cached_property
    def gcn(self) -> SparseMatrix:
        """These rows of the cohort's GCN operator: [T, R]."""
        return self.chosen(as_scipy(self._cohort.gcn))

    @cached_property
    def mean(self) -> SparseMatrix:
        """These rows of the cohort's mean over neighbours: [T, R]."""
        return self.chosen(as_scipy(self._cohort.mean))

    @cached_property
    def sums(self) -> SparseMatrix:
        """These rows of the cohort's sum over a node and its neighbours: [T, R]."""
        return self.chosen(as_scipy(self._cohort.sums))


class Cohort(Rows, Memo):
    """M clients as one block-diagonal graph on one device; its rows are the clients' nodes.

    Attributes:
        ids: [M] int64, the clients' numbers in the federation.
        features: F, the number of features.
        stores_features: whether its features are stored row by row; a cohort may have them once for all clients.
        train, val, test: the rows of the nodes of each part.
        efforts: the share of its training steps that each client does in the round that is computed; None: all do all.
    """

    efforts: Sequence[float] | None = None

    def __init__(self, clients: Sequence[Client], device: torch.device | str = "cpu", padding: float = PADDING_LIMIT):
        if not clients:
            raise ValueError("a cohort needs at least one client")
        super().__init__([c.graph.nodes for c in clients], torch.device(device), padding)
        self.members = list(clients)
        self.padding = padding
        self.ids = torch.tensor([c.id for c in clients], dtype=torch.int64)
        self.features = clients[0].graph.features
        self.stores_features = True
        split = self.rows_of([torch.from_numpy(c.split) for c in clients], NONE)
        self.train, self.val, self.test = (torch.nonzero(split == part).ravel() for part in (TRAIN, VAL, TEST))

    @property
    def origin(self) -> Cohort:
        """The cohort of the clients' whole graphs: this one, unless it is a batch of another (`fedquilt.cohort.batches`)."""
        return self

    def take(self, chosen: Sequence[int]) -> Cohort:
        """Return the cohort of some of the clients, given by their indices in this cohort."""
        return Cohort([self.members[m] for m in chosen], self.device, self.padding)

    def release(self) -> None:
        """Forget everything, where it was needed for one step only; it cannot be used any more.

        What was computed of a cohort refers to it, and would stay in memory until the garbage collector comes.
        """
        self.__dict__.clear()

    def own_settings(self, name: str, usual: float) -> list[float] | None:
        """The value of a setting for each client, of which those without one of their own have the usual; None: all have it."""
        if not any(name in client.settings for client in self.members):
            return None
        return [client.settings.get(name, usual) for client in self.members]

    def own_values(self, name: str, usual: float) -> Tensor | None:
        """The same as a tensor [M]: of double precision on the CPU, where each is used as a number of its own."""
        values = self.own_settings(name, usual)
        kind = torch.float64 if self.device.type == "cpu" else torch.float32
        return None if values is None else torch.tensor(values, dtype=kind, device=self.device)

    @cached_property
    def training(self) -> TrainingRows:
        """The training nodes as separate rows."""
        return TrainingRows(self)

    # -- operators, computed on first use -----------------------------------------------------------------

    @cached_property
    def gcn(self) -> SparseMatrix:
        """The block-diagonal GCN operator D^-1/2 (A + I) D^-1/2, [R, R]."""
        weights = joined_weights(self.members)
        return SparseMatrix(operators.gcn(self._joined(), self.rows, self.taken, weights)).to(self.device)

    @cached_property
    def mean(self) -> SparseMatrix:
        """The block-diagonal mean over neighbours D^-1 A, [R, R], weighted where edges have weights."""
        weights = joined_weights(self.members)
        return SparseMatrix(operators.neighbour_mean(self._joined(), self.rows, weights)).to(self.device)

    @cached_property
    def sums(self) -> SparseMatrix:
        """The block-diagonal sum over a node and its neighbours A + I, [R, R], weighted where edges have weights."""
        weights = joined_weights(self.members)
        return SparseMatrix(operators.looped_adjacency(self._joined(), self.rows, self.taken, weights)).to(self.device)

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
    def sum_x(self) -> FeatureMatrix:
        """The features summed over a node and its neighbours (A + I) X, constant."""
        return FeatureMatrix(self, [c.graph.x for c in self.members], self.sums)

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

    @cached_property
    def edge_weights(self) -> Tensor | None:
        """[E'] float32: the relative weights of `edges`, one for a self-loop (`Client.edge_weights`); None: all are one."""
        weights = joined_weights(self.members)
        if weights is None:
            return None
        a = operators.adjacency(self._joined(), self.rows, weights)
        neighbours = np.diff(a.indptr)[self.taken]
        out = np.ones(a.nnz + neighbours.size, dtype=np.float32)
        loop = np.zeros(out.size, dtype=bool)
        loop[np.cumsum(neighbours + 1) - 1] = True
        out[~loop] = a.data
        return torch.from_numpy(out).to(self.device)

    # -- means over a client's rows ----------------------------------------------------------------------------------

    def counts(self, index: Tensor) -> Tensor:
        """Count the rows in `index` of each client: [M] float32. The counts of train, val, test and nodes are cached."""
        known = self._name_of(index)
        counted: Tensor = self._count(index) if known is None else self.once(known, lambda c: c._count(index))
        return counted

    def _name_of(self, index: Tensor) -> str | None:
        """Which of the rows train, val, test and nodes these are; None: none of them."""
        return next((name for name in ("train", "val", "test", "nodes") if index is getattr(self, name)), None)

    def at(self, name: str, values: Tensor, index: Tensor) -> Tensor:
        """The rows `index` of constant `values` [R, ...] called `name`; cached where the rows are train, val, test or nodes."""
        known = self._name_of(index)
        found: Tensor = values[index] if known is None else self.once((name, known), lambda c: values[index])
        return found

    def _count(self, index: Tensor) -> Tensor:
        return torch.bincount(self.client[index], minlength=self.clients).to(torch.float32)

    @cached_property
    def train_count(self) -> Tensor:
        """[M] float32: training nodes of each client."""
        return self.counts(self.train)

    @cached_property
    def train_weight(self) -> Tensor:
        """[T] float32: 1 / (number of the client's training nodes) for each training row; a sum so weighted is a mean."""
        return 1.0 / self.train_count[self.client[self.train]]

    def sum_over(self, values: Tensor, index: Tensor) -> Tensor:
        """Sum `values` [T] of the rows `index` [T] (in rising order) for each client: [M]."""
        if values.is_cuda:  # one segment per client; atomic additions to so few addresses would be slow
            lengths = self.counts(index).long()
            return torch.segment_reduce(values.float(), "sum", lengths=lengths, unsafe=True, initial=0.0)
        return torch.zeros(self.clients).index_add_(0, self.at("client", self.client, index), values.float())

    def mean_over(self, values: Tensor, index: Tensor) -> Tensor:
        """Average `values` [T] of the rows `index` [T] (in rising order) for each client: [M], NaN if it has no rows."""
        return self.sum_over(values, index) / self.counts(index)

    @cached_property
    def node_count(self) -> Tensor:
        """[M] int64: nodes of each client."""
        return torch.tensor(self.sizes, device=self.device)

    @cached_property
    def first_row(self) -> Tensor:
        """[M] int64: each client's first row; `start` as a tensor on the device."""
        return torch.from_numpy(self.start).to(self.device)

    @cached_property
    def nodes(self) -> Tensor:
        """The rows that are not padding."""
        return torch.nonzero(self.position < self.node_count[self.client]).ravel()

    @cached_property
    def _is_node(self) -> Tensor:
        """[R, 1]: whether a row is a node, not padding."""
        return (self.position < self.node_count[self.client]).unsqueeze(1)

    def node_mean(self, rows: Tensor) -> Tensor:
        """Each client's mean over its nodes: [R, H] -> [M, H]."""
        if self.length is not None:
            total = torch.where(self._is_node, rows, 0.0).view(self.clients, self.length, -1).sum(1)
        else:
            total = torch.zeros(self.clients, rows.shape[1], device=rows.device, dtype=rows.dtype)
            total.index_add_(0, self.client, rows)
        return total / self.node_count.unsqueeze(1)
