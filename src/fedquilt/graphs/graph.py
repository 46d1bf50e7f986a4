"""`Graph`: one undirected graph with features, labels and an optional split."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from fedquilt.errors import FedquiltError
from fedquilt.graphs import operators
from fedquilt.graphs.arrays import Features, feature_array, from_tensor, label_array
from fedquilt.graphs.edge_weights import (
    check_weights,
    given_weight,
    undirected_with_weights,
    unused_edge_attributes,
    warn_of_direction,
    warn_of_unused,
    weight_array,
)
from fedquilt.graphs.encoding import Encoding
from fedquilt.graphs.label_numbers import as_numbers, check_numbers, presence
from fedquilt.graphs.validate import (
    PARTS,
    check_copies,
    check_edges,
    check_features,
    check_ids,
    check_labels,
    check_masks,
    check_text,
)

if TYPE_CHECKING:
    from torch_geometric.data import Data


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
        ids: optional [N] names of the nodes; predictions are labelled with them.
        class_names: optional C names of the classes.
        copies: optional [N] int64; nodes with the same number are copies of one another. A split puts all copies in one part,
            so that no copy of a test node is trained on.
        feature_names: optional F distinct names of the features, in their order, such as the columns of a table.
        encoding: optional, how the columns of a table became the features.
        edge_weights: optional [E] float32, positive, one for each of `edges`: how strongly it joins its two nodes. None: all
            edges count the same. Only ratios matter (`Client.edge_weights`).
        numbers: optional [N] float64, where labels are numbers and not classes; NaN means unlabelled. `y` is then 0 where there
            is one and -1 elsewhere, and there is one class (`fedquilt.graphs.label_numbers`).
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
    encoding: Encoding | None = None
    edge_weights: np.ndarray | None = None
    numbers: np.ndarray | None = None

    @classmethod
    def from_arrays(
        cls,
        name: str,
        edges: Any,
        x: Any,
        y: Any,
        *,
        classes: int | None = None,
        masks: dict[str, Any] | None = None,
        ids: Any = None,
        class_names: tuple[str, ...] | None = None,
        copies: Any = None,
        feature_names: tuple[str, ...] | None = None,
        encoding: Encoding | None = None,
        edge_weights: Any = None,
        numbers: Any = None,
        where: str | None = None,
        labelled: bool = True,
    ) -> Graph:
        """Clean loosely given arrays and validate the graph they make. Every reader of files uses it.

        Edges may come in one or both directions, with self-loops and duplicates: they are cleaned. A real fault, such as an
        edge to a node that does not exist or a feature that is not a number, is an error.

        Args:
            name: what to call the graph.
            edges: [2, E] whole numbers.
            x: [N, F] features, an array or a scipy sparse matrix.
            y: [N] labels; -1 (or NaN in a float array) means unlabelled. A float array that cannot be classes, because one
                is a fraction, below -1 or too large, has numbers as labels; NaN means unlabelled there.
            classes: C, if larger than the largest label + 1.
            masks: `{"train": ..., "val": ..., "test": ...}`, bool [N] each.
            ids: [N] distinct names of the nodes.
            class_names: C names of the classes.
            copies: [N] whole numbers, the same for copies of one another.
            feature_names: F distinct names of the features.
            encoding: how the columns of a table became the features.
            edge_weights: [E] positive numbers, one for each column of `edges`. An edge that is named more than once, in either
                direction, has the largest of its weights.
            numbers: [N] labels that are numbers whatever they look like, in place of `y`; NaN means unlabelled.
            where: what errors call the graph, such as the file it came from; default: its name.
            labelled: whether at least one node must have a label.
        """
        where = where or name
        values = as_numbers(y) if numbers is None else np.asarray(numbers, dtype=np.float64)
        if values is not None:
            y, classes, class_names = presence(values), 1, None
        labels = label_array(y, where)
        nodes = labels.shape[0]
        if nodes == 0:
            raise FedquiltError(f"{where} has no nodes; a graph needs at least one.")
        weights = None if edge_weights is None else weight_array(edge_weights, np.asarray(edges).shape[-1], where)
        cleaned, weights = undirected_with_weights(edges, weights, nodes, where)
        graph = cls(
            name=name,
            edges=cleaned,
            x=feature_array(x, where),
            y=labels,
            classes=max(int(labels.max()) + 1, 0) if classes is None else int(classes),
            masks=None if masks is None else {part: np.asarray(mask) for part, mask in masks.items()},
            ids=None if ids is None else np.asarray(ids),
            class_names=class_names,
            copies=None if copies is None else np.asarray(copies),
            feature_names=feature_names,
            encoding=encoding,
            edge_weights=weights,
            numbers=values,
        )
        graph.validate(where, labelled)
        return graph

    @classmethod
    def from_data(cls, data: Data, name: str = "graph", labelled: bool = True) -> Graph:
        """Convert PyTorch Geometric's `Data` to a graph, cleaned and validated like one from a file.

        Edges are made undirected, self-loops and duplicates dropped. Sparse `x` stays sparse. `train_mask`, `val_mask` and
        `test_mask` become the given split when all three are there and have one dimension. Unless `labelled`, `y` may be
        missing. `edge_weight`, or else an `edge_attr` of one number an edge, are the weights of edges; what else edges have is
        not used, and neither is their direction: warnings say so.
        """
        for key in ("edge_index", "x", "y"):
            if getattr(data, key, None) is None and (labelled or key != "y"):
                raise FedquiltError(f"{name} has no `{key}`; give a Data with edge_index, x and y.")
        masks = {part: getattr(data, f"{part}_mask", None) for part in PARTS}
        # A two-dimensional mask holds several splits, and it is unknown which one the user means.
        found = {part: mask.cpu().numpy() for part, mask in masks.items() if mask is not None and mask.dim() == 1}
        y = np.full(data.x.shape[0], -1) if getattr(data, "y", None) is None else from_tensor(data.y)
        edges = from_tensor(data.edge_index)
        warn_of_direction(edges, name, usual=False)
        warn_of_unused(unused_edge_attributes(data), name, "attributes")
        weight = given_weight(data)
        return cls.from_arrays(
            name,
            edges,
            from_tensor(data.x),
            y.squeeze(1) if y.ndim == 2 and y.shape[1] == 1 else y,
            masks=found if len(found) == len(PARTS) else None,
            edge_weights=None if weight is None else from_tensor(weight),
            labelled=labelled,
        )

    def validate(self, where: str | None = None, labelled: bool = True) -> None:
        """Raise one clear error for the first fault.

        Args:
            where: what the error calls the graph; default: its name.
            labelled: whether at least one node must have a label.
        """
        where = where or self.name
        if self.nodes == 0:
            raise FedquiltError(f"{where} has no nodes; a graph needs at least one.")
        check_text(self.name, self.class_names, self.feature_names, where)
        check_edges(self.edges, self.nodes, where)
        if self.edge_weights is not None:
            check_weights(self.edge_weights, self.edges.shape[1], where)
        check_features(self.x, self.nodes, self.feature_names, self.ids, where)
        if self.encoding is not None and self.encoding.feature_names != self.feature_names:
            raise FedquiltError(
                f"{where} has features that are not those of its 'encoding'; write it again, or without it."
            )
        check_labels(self.y, self.classes, self.class_names, labelled, where)
        if self.numbers is not None:
            check_numbers(self.numbers, self.y, self.classes, where)
        if self.masks is not None:
            check_masks(self.masks, self.nodes, where)
        if self.ids is not None:
            check_ids(self.ids, self.nodes, where)
        if self.copies is not None:
            check_copies(self.copies, self.nodes, where)

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
        """The symmetric [N, N] adjacency matrix of ones, without self-loops and without weights."""
        return operators.adjacency(self.edges, self.nodes)

    def with_edges(self, edges: np.ndarray, edge_weights: np.ndarray | None = None) -> Graph:
        """The same nodes with other edges, [2, E] with ``u < v``, and their weights [E], or none."""
        return replace(self, edges=edges, edge_weights=edge_weights)

    def some_edges(self, kept: np.ndarray) -> Graph:
        """The same nodes with some of the edges, with their weights: `kept` is bool [E]."""
        return self.with_edges(self.edges[:, kept], None if self.edge_weights is None else self.edge_weights[kept])

    def subgraph(self, nodes: np.ndarray, name: str | None = None) -> Graph:
        """Return the graph induced by `nodes` (sorted, distinct), renumbered 0..len(nodes)-1."""
        place = np.full(self.nodes, -1, dtype=np.int64)
        place[nodes] = np.arange(len(nodes))
        renumbered = place[self.edges]
        inside = (renumbered >= 0).all(axis=0)
        masks = None if self.masks is None else {part: mask[nodes] for part, mask in self.masks.items()}
        return replace(
            self,
            name=name or self.name,
            edges=renumbered[:, inside],
            x=self.x[nodes],
            y=self.y[nodes],
            masks=masks,
            ids=None if self.ids is None else self.ids[nodes],
            copies=None if self.copies is None else self.copies[nodes],
            edge_weights=None if self.edge_weights is None else self.edge_weights[inside],
            numbers=None if self.numbers is None else self.numbers[nodes],
        )

    def to_data(self) -> Data:
        """Convert the graph to PyTorch Geometric's `Data`: both directions of each edge, with its weight, dense features."""
        import torch
        from torch_geometric.data import Data

        x = self.x if isinstance(self.x, np.ndarray) else self.x.toarray()
        both = np.concatenate([self.edges, self.edges[::-1]], axis=1)
        y = torch.from_numpy(self.y) if self.numbers is None else torch.from_numpy(self.numbers).float()
        data = Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(both), y=y)
        if self.edge_weights is not None:
            data.edge_weight = torch.from_numpy(np.concatenate([self.edge_weights, self.edge_weights]))
        for part, mask in (self.masks or {}).items():
            data[f"{part}_mask"] = torch.from_numpy(mask)
        return data
