"""The disjoint union: several graphs as one, with no edge between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from fedquilt.graphs.arrays import as_sparse
from fedquilt.graphs.copies import equal_rows
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.label_numbers import joined_numbers


def disjoint_union(name: str, graphs: Sequence[Graph]) -> Graph:
    """Join graphs to one graph, with nodes in the order of the graphs. All graphs have the same features and classes.

    Features are sparse. Given splits and ids are dropped. Nodes with equal features are marked as copies of one another,
    because synthetic graphs often contain the same nodes with different edges. Where some graphs have edge weights, the edges
    of the others weigh one.
    """
    x = sp.vstack([as_sparse(graph.x) for graph in graphs], format="csr")
    first = np.cumsum([0, *(graph.nodes for graph in graphs)])
    return Graph(
        name=name,
        edges=np.concatenate([graph.edges + start for graph, start in zip(graphs, first, strict=False)], axis=1),
        x=x,
        y=np.concatenate([graph.y for graph in graphs]),
        classes=graphs[0].classes,
        class_names=graphs[0].class_names,
        copies=equal_rows(x),
        feature_names=graphs[0].feature_names,
        edge_weights=_joined_weights(graphs),
        numbers=joined_numbers([(graph.y, graph.numbers) for graph in graphs]),
    )


def _joined_weights(graphs: Sequence[Graph]) -> np.ndarray | None:
    if all(graph.edge_weights is None for graph in graphs):
        return None
    each = [np.ones(g.edges.shape[1], np.float32) if g.edge_weights is None else g.edge_weights for g in graphs]
    return np.concatenate(each)
