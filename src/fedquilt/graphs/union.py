"""Several graphs side by side as one, with no edge between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from fedquilt.graphs.graph import Graph
from fedquilt.graphs.raw import as_sparse


def disjoint_union(name: str, graphs: Sequence[Graph]) -> Graph:
    """One graph of all nodes, in the order of the graphs, which have the same features and classes.

    Features are sparse. Given splits and the nodes' own names do not come along.
    """
    first = np.cumsum([0, *(graph.nodes for graph in graphs)])
    return Graph(
        name=name,
        edges=np.concatenate([graph.edges + start for graph, start in zip(graphs, first, strict=False)], axis=1),
        x=sp.vstack([as_sparse(graph.x) for graph in graphs], format="csr"),
        y=np.concatenate([graph.y for graph in graphs]),
        classes=graphs[0].classes,
        class_names=graphs[0].class_names,
    )
