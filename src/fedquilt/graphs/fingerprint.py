"""Fingerprints of a graph's parts: two graphs with equal fingerprints train to the same numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from fedquilt.graphs.graph import Graph

_BYTES = 16  # of a fingerprint


def fingerprints(graph: Graph) -> dict[str, str]:
    """By part of the graph (nodes, features, labels, edges, ...), a hash of all that a training reads of it.

    The parts are apart, so that a difference can be named. `nodes` is their number. The names of nodes and of features are
    no part: no number depends on them.
    """
    x = graph.x
    features = [x] if isinstance(x, np.ndarray) else [x.data, x.indices, x.indptr, np.array(x.shape)]
    masks = [] if graph.masks is None else [graph.masks[part] for part in sorted(graph.masks)]
    names = "\0".join(graph.class_names or ()).encode("utf-8", "surrogatepass")
    return {
        "nodes": str(graph.nodes),
        "features": array_digest(features),
        "labels": array_digest([graph.y, np.array(graph.classes)]),
        "edges": array_digest([graph.edges]),
        "given split": array_digest(masks),
        "copies": array_digest([] if graph.copies is None else [graph.copies]),
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
