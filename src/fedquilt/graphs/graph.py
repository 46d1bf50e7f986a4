"""One graph, as every other part of fedquilt sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import scipy.sparse as sp

from fedquilt.graphs import operators

if TYPE_CHECKING:
    from torch_geometric.data import Data

Features: TypeAlias = np.ndarray | sp.csr_matrix


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph with node features and labels.

    Attributes:
        name: what to call it.
        edges: [2, E] int64, each undirected edge once with ``u < v``; no self-loops, no duplicates.
        x: [N, F] float32 features, dense or scipy CSR.
        y: [N] int64 labels 0..C-1; -1 means unlabelled.
        classes: C. May exceed ``y.max() + 1``: a graph cut from a larger one keeps the larger one's classes.
        masks: optional given split, ``{"train": bool [N], "val": ..., "test": ...}``, disjoint.
        ids: optional [N] names of the nodes (a user's own file has them; predictions carry them back).
        class_names: optional C names of the classes, where a user's file calls them by name.
        copies: optional [N] int64: nodes with the same number are copies of one thing, which a split puts in one part: a test
            node of which a copy trains is no test.
        feature_names: optional F distinct names of the features, in their order; a table's are its columns'.
    """

    name: str
    edges: np.ndarray
    x: Features
    y: np.ndarray
    classes: int
    masks: dict[str, np.ndarray] | None = None
    ids: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None
    copies: np.ndarray | None = None
    feature_names: tuple[str, ...] | None = None

    @classmethod
    def from_data(cls, data: Data, name: str = "graph") -> Graph:
        """A graph from PyTorch Geometric's `Data`, checked as a file would be.

        Edges are made undirected, self-loops and duplicates dropped. Sparse `x` stays sparse. `train_mask`,
        `val_mask` and `test_mask` become the given split when all three are there and have one dimension.
        """
        from fedquilt.graphs.build import from_data

        return from_data(data, name)

    @property
    def nodes(self) -> int:
        """N, the number of nodes."""
        return int(self.y.shape[0])

    @property
    def features(self) -> int:
        """F, the number of features."""
        return int(self.x.shape[1])

    @property
    def sparse(self) -> bool:
        """Whether the features are stored sparsely."""
        return sp.issparse(self.x)

    def adjacency(self) -> sp.csr_matrix:
        """The symmetric [N, N] adjacency matrix of ones, without self-loops."""
        return operators.adjacency(self.edges, self.nodes)

    def subgraph(self, nodes: np.ndarray, name: str | None = None) -> Graph:
        """The graph induced by `nodes` (sorted, distinct), renumbered 0..len(nodes)-1."""
        place = np.full(self.nodes, -1, dtype=np.int64)
        place[nodes] = np.arange(len(nodes))
        kept = place[self.edges]
        kept = kept[:, (kept >= 0).all(axis=0)]
        masks = None if self.masks is None else {part: mask[nodes] for part, mask in self.masks.items()}
        return replace(
            self,
            name=name or self.name,
            edges=kept,
            x=self.x[nodes],
            y=self.y[nodes],
            masks=masks,
            ids=None if self.ids is None else self.ids[nodes],
            copies=None if self.copies is None else self.copies[nodes],
        )

    def to_data(self) -> Data:
        """The same graph as PyTorch Geometric's `Data`: both directions of each edge, dense features."""
        import torch
        from torch_geometric.data import Data

        x = self.x if isinstance(self.x, np.ndarray) else self.x.toarray()
        both = np.concatenate([self.edges, self.edges[::-1]], axis=1)
        data = Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(both), y=torch.from_numpy(self.y))
        for part, mask in (self.masks or {}).items():
            data[f"{part}_mask"] = torch.from_numpy(mask)
        return data
