"""METIS: cut a graph into parts of near-equal size with few edges between them."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import scipy.sparse as sp

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.fingerprint import fingerprint

# METIS draws random numbers of its own. The papers keep one cut and vary the rest, so the cut is no seed's
# business; 4321 is what METIS takes when it is told nothing, as in FED-PUB's code.
METIS_SEED = 4321
# The latest cuts, by graph and parts: the seeds of a run and the methods of a comparison share one, and a million nodes take
# METIS half a minute.
_LATEST: OrderedDict[tuple[str, int], np.ndarray] = OrderedDict()
_KEPT = 4


def cut(graph: Graph, parts: int) -> np.ndarray:
    """Cut a graph k-way with METIS (Karypis, 1997), as FED-PUB does, and never return an empty part.

    The cut depends on the graph alone: the same graph gives the same cut, in whatever order its edges come.

    Returns:
        [N] int64 labels 0..parts-1, each of which occurs.
    """
    if parts < 1:
        raise FedquiltError(f"METIS cannot cut a graph into {parts} parts; ask for at least one.")
    if parts > graph.nodes:
        raise FedquiltError(
            f"Graph '{graph.name}' has {graph.nodes} nodes and cannot be cut into {parts} parts; ask for fewer parts."
        )
    if parts == 1:
        return np.zeros(graph.nodes, dtype=np.int64)
    try:
        from pymetis import CSRAdjacency, Options, part_graph, zero_copy_dtype
    except ImportError as error:
        raise FedquiltError(
            "A METIS cut needs the package pymetis, 2025.2 or newer; install it (pip install "
            "'pymetis>=2025.2') or use a saved partition instead."
        ) from error

    key = fingerprint(graph), parts
    if key not in _LATEST:
        adjacency = graph.adjacency()
        integer = zero_copy_dtype()
        neighbours = CSRAdjacency(adjacency.indptr.astype(integer), adjacency.indices.astype(integer))
        # pymetis alone would bisect recursively up to 8 parts; k-way is METIS's default and what FED-PUB uses.
        _, labels = part_graph(parts, neighbours, recursive=False, options=Options(seed=METIS_SEED))
        _LATEST[key] = _fill_empty_parts(np.asarray(labels, dtype=np.int64), adjacency, parts)
    _LATEST.move_to_end(key)
    while len(_LATEST) > _KEPT:
        _LATEST.popitem(last=False)
    return _LATEST[key].copy()


def _fill_empty_parts(labels: np.ndarray, adjacency: sp.csr_matrix, parts: int) -> np.ndarray:
    """Give each empty part the node of the then largest part that has the fewest edges inside it."""
    counts = np.bincount(labels, minlength=parts)
    empty = np.flatnonzero(counts == 0)
    if not empty.size:
        return labels
    rows = np.repeat(np.arange(labels.size), np.diff(adjacency.indptr))
    inside = np.bincount(rows[labels[rows] == labels[adjacency.indices]], minlength=labels.size)
    # Each part's nodes stand together, its most loosely tied node last, so that giving one away is taking the
    # last.
    standing = np.lexsort((-inside, labels))
    ends = np.cumsum(counts)
    filled = labels.copy()
    for part in empty:
        donor = int(np.argmax(counts))
        ends[donor] -= 1
        counts[donor] -= 1
        filled[standing[ends[donor]]] = part
        counts[part] = 1
    return filled
