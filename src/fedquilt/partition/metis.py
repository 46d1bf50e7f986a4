"""METIS: cut a graph into parts of near-equal size with few edges between them."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import scipy.sparse as sp

from fedquilt.common.machine_limits import is_out_of_memory
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.fingerprint import fingerprint

# METIS draws random numbers itself. The papers use one cut for all seeds, so its seed is fixed: 4321 is METIS's default, which
# FED-PUB's code uses.
METIS_SEED = 4321
# The latest cuts, by (fingerprint, parts, shares). The seeds of a run and the methods of a comparison share a cut, and METIS
# needs half a minute for a million nodes.
_CACHE: OrderedDict[tuple[str, int, bytes], np.ndarray] = OrderedDict()
_CACHE_SIZE = 4


def cut(graph: Graph, parts: int, shares: np.ndarray | None = None) -> np.ndarray:
    """Cut a graph k-way with METIS (Karypis, 1997), as FED-PUB does, and never return an empty part.

    The cut depends on the graph alone: the same graph gives the same cut, in whatever order its edges come.

    Args:
        graph: the graph.
        parts: how many.
        shares: [parts] the share of the nodes that each part is to have, about; they sum to one. None: near-equal parts.

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
        if is_out_of_memory(error):  # it is installed
            raise
        raise FedquiltError(
            "A METIS cut needs the package pymetis, 2025.2 or newer; install it (pip install "
            "'pymetis>=2025.2') or use a saved partition instead."
        ) from error

    key = fingerprint(graph), parts, b"" if shares is None else shares.tobytes()
    if key not in _CACHE:
        adjacency = graph.adjacency()
        integer = zero_copy_dtype()
        neighbours = CSRAdjacency(adjacency.indptr.astype(integer), adjacency.indices.astype(integer))
        wanted = {} if shares is None else {"tpwgts": shares.tolist()}
        # pymetis alone would bisect recursively up to 8 parts; k-way is METIS's default and what FED-PUB uses.
        _, labels = part_graph(parts, neighbours, recursive=False, options=Options(seed=METIS_SEED), **wanted)
        _CACHE[key] = _fill_empty_parts(np.asarray(labels, dtype=np.int64), adjacency, parts)
    _CACHE.move_to_end(key)
    while len(_CACHE) > _CACHE_SIZE:
        _CACHE.popitem(last=False)
    return _CACHE[key].copy()


def _fill_empty_parts(labels: np.ndarray, adjacency: sp.csr_matrix, parts: int) -> np.ndarray:
    """Move one node to each empty part: from the largest part, the node with the fewest edges inside that part."""
    counts = np.bincount(labels, minlength=parts)
    empty = np.flatnonzero(counts == 0)
    if not empty.size:
        return labels
    rows = np.repeat(np.arange(labels.size), np.diff(adjacency.indptr))
    inside = np.bincount(rows[labels[rows] == labels[adjacency.indices]], minlength=labels.size)
    # Nodes sorted by part, and within a part by falling number of inside edges: the node to give away is the last.
    order = np.lexsort((-inside, labels))
    ends = np.cumsum(counts)
    filled = labels.copy()
    for part in empty:
        donor = int(np.argmax(counts))
        ends[donor] -= 1
        counts[donor] -= 1
        filled[order[ends[donor]]] = part
        counts[part] = 1
    return filled
