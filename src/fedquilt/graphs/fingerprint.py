"""Fingerprints of a graph's parts: two graphs with equal fingerprints train to the same numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from fedquilt.graphs.arrays import Features
from fedquilt.graphs.column_sums import row_blocks
from fedquilt.graphs.graph import Graph

_BYTES = 16  # of a fingerprint


def fingerprints(graph: Graph) -> dict[str, str]:
    """By part of the graph (nodes, features, labels, edges, ...), a hash of all that a training reads of it.

    The parts are apart, so that a difference can be named. `nodes` is their number. The names of nodes and of features are
    no part: no number depends on them. A graph has the same fingerprints when it is written to a file and read again, which
    sorts edges and stored features. Edges have their weights with them, where they have any.
    """
    masks = [] if graph.masks is None else [graph.masks[part] for part in sorted(graph.masks)]
    names = "\0".join(graph.class_names or ()).encode("utf-8", "surrogatepass")
    return {
        "nodes": str(graph.nodes),
        "features": _feature_digest(graph.x),
        "labels": array_digest([_whole(graph.y), np.array(graph.classes), *_numbers(graph)]),
        "edges": array_digest(_sorted_edges(graph)),
        "given split": array_digest(masks),
        "copies": array_digest([] if graph.copies is None else [_whole(graph.copies)]),
        "class names": hashlib.blake2b(names, digest_size=_BYTES).hexdigest(),
    }


def array_digest(arrays: Iterable[np.ndarray]) -> str:
    """A hash of arrays: types, shapes and content, in their order."""
    digest = hashlib.blake2b(digest_size=_BYTES)
    for array in arrays:
        flat = np.ascontiguousarray(array)
        digest.update(f"{flat.dtype.str}{flat.shape};".encode())
        digest.update(flat.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _feature_digest(x: Features) -> str:
    """Of float32 without the sign of zeros; of a sparse matrix with sorted indices of one type.

    Dense features are hashed block by block, as `array_digest` hashes them at once: they may be larger than memory.
    """
    if isinstance(x, np.ndarray):
        digest = hashlib.blake2b(f"{np.dtype(np.float32).str}{x.shape};".encode(), digest_size=_BYTES)
        for rows in row_blocks(x):
            digest.update((x[rows].astype(np.float32, copy=False) + np.float32(0)).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()
    x = x if x.has_sorted_indices else x.sorted_indices()
    data = x.data.astype(np.float32, copy=False) + np.float32(0)
    return array_digest([data, _whole(x.indices), _whole(x.indptr), np.array(x.shape, dtype=np.int64)])


def _numbers(graph: Graph) -> list[np.ndarray]:
    """Labels that are numbers, where they are, with one kind of NaN."""
    return [] if graph.numbers is None else [np.where(np.isnan(graph.numbers), np.nan, graph.numbers + 0.0)]


def _sorted_edges(graph: Graph) -> list[np.ndarray]:
    """[E] int64: the edges as numbers, in rising order; and their weights [E] float32 where they have any."""
    u, v = _whole(graph.edges)
    edges = np.minimum(u, v) * graph.nodes + np.maximum(u, v)
    weights = graph.edge_weights
    if (edges[1:] < edges[:-1]).any():  # checking is quicker than sorting, and edges mostly are sorted
        order = edges.argsort(kind="stable")
        edges, weights = edges[order], None if weights is None else weights[order]
    return [edges] if weights is None else [edges, weights.astype(np.float32, copy=False)]


def _whole(array: np.ndarray) -> np.ndarray:
    return array.astype(np.int64, copy=False)
