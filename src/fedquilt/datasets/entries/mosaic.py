"""mosaic: a generated graph of any size, to measure how time and memory grow."""

from __future__ import annotations

import numpy as np

from fedquilt.common.random_streams import numpy_stream
from fedquilt.datasets.catalogue import register_synthetic
from fedquilt.errors import FedquiltError
from fedquilt.graphs.column_sums import row_blocks
from fedquilt.graphs.graph import Graph

_PIECE_NODES = 100
_INSIDE, _ALIKE = 0.7, 0.2  # shares of the edges inside a piece, and between nodes of one class


def _pieces(nodes: int) -> np.ndarray:
    """[N] the piece of each node."""
    return np.arange(nodes) // _PIECE_NODES


@register_synthetic(
    "mosaic",
    "any size: pieces of 100 nodes, to see what grows",
    size=(10000, 48400, 64, 10),
    natural_clients=lambda nodes, client, **_: np.arange(nodes) // max(client, 1),
)
def mosaic(
    seed: int = 0,
    nodes: int = 10_000,
    degree: int = 10,
    features: int = 64,
    classes: int = 10,
    client: int = _PIECE_NODES,
) -> Graph:
    """A graph of any size, in O(nodes features + nodes degree) time: a million nodes and five million edges in seconds.

    Nodes form pieces of 100 (the last may have fewer). A piece has a leading class, which six in ten of its nodes have; the
    others have any class. Of the nodes * degree / 2 edges drawn, seven in ten join two nodes of one piece, two in ten two
    nodes of one class, and one in ten any two nodes. Self-loops and duplicates are dropped, so the mean degree is a little
    smaller. Features are Gaussian around a centre for each class. A natural client has `client` nodes, one piece unless more
    are asked for; the graph does not depend on it.

    Use it to measure time and memory; no method should be judged on it.
    """
    if min(nodes, features, classes, client) < 1:
        raise FedquiltError(
            "A mosaic needs at least one node, one feature and one class, and clients with at least one node; give larger "
            "numbers."
        )
    rng = numpy_stream(seed, "graph", "mosaic")
    piece = _pieces(nodes)
    leading = rng.integers(classes, size=piece[-1] + 1)
    y = np.where(rng.random(nodes) < 0.6, leading[piece], rng.integers(classes, size=nodes))
    count = nodes * degree // 2
    inside, alike = int(_INSIDE * count), int((_INSIDE + _ALIKE) * count)
    u, draw = rng.integers(nodes, size=count), rng.random(count)
    first = piece[u[:inside]] * _PIECE_NODES
    near = first + (draw[:inside] * np.minimum(_PIECE_NODES, nodes - first)).astype(np.int64)
    # Nodes sorted by class, so that the nodes of a class are one range.
    order, sizes, own = np.argsort(y, kind="stable"), np.bincount(y, minlength=classes), y[u[inside:alike]]
    same = order[(np.cumsum(sizes) - sizes)[own] + (draw[inside:alike] * sizes[own]).astype(np.int64)]
    anywhere = (draw[alike:] * nodes).astype(np.int64)
    edges = np.stack([u, np.concatenate([near, same, anywhere])])
    del piece, u, draw, first, near, order, own, same, anywhere  # large graphs should not be in memory several times
    x = rng.standard_normal((nodes, features), dtype=np.float32)
    centres = rng.standard_normal((classes, features), dtype=np.float32)
    for rows in row_blocks(x):
        x[rows] += centres[y[rows]]
    return Graph.from_arrays("mosaic", edges, x, y, classes=classes)
