"""Constant matrices of an undirected graph, from its edges: one pass over them, however many graphs lie side by side.

Edges are [2, E], each once with ``u < v``. Where they are sorted, as `build_graph` leaves them, entries come out in order and
nothing is sorted again.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def adjacency(edges: np.ndarray, nodes: int) -> sp.csr_matrix:
    """A: the symmetric [nodes, nodes] float32 matrix of ones, without self-loops."""
    return _symmetric(edges, np.zeros(0, dtype=np.int64), nodes)


def gcn(edges: np.ndarray, nodes: int, looped: np.ndarray) -> sp.csr_matrix:
    """D^-1/2 (A + I) D^-1/2, [nodes, nodes] float32, D the row sums of A + I (Kipf and Welling, 2017).

    Args:
        edges: [2, E].
        nodes: rows and columns.
        looped: those of them, in rising order, that are nodes and get a self-loop; any other is padding, a row of zeros.
    """
    a = _symmetric(edges, looped, nodes)
    degree = np.diff(a.indptr)
    scale = 1.0 / np.sqrt(np.maximum(degree, 1).astype(np.float32))
    a.data = np.repeat(scale, degree)
    a.data *= scale[a.indices]
    return a


def neighbour_mean(edges: np.ndarray, nodes: int) -> sp.csr_matrix:
    """D^-1 A, [nodes, nodes] float32: the mean over neighbours; a node without any gets zero."""
    a = adjacency(edges, nodes)
    degree = np.diff(a.indptr)
    a.data = np.repeat(1.0 / np.maximum(degree, 1).astype(np.float32), degree)
    return a


def _symmetric(edges: np.ndarray, loops: np.ndarray, nodes: int) -> sp.csr_matrix:
    u, v = edges
    # A row's entries left of the diagonal, on it, and right of it: scipy lays entries into rows in the order in which they
    # come, so that rows of sorted edges are sorted too.
    rows, columns = np.concatenate([v, loops, u]), np.concatenate([u, loops, v])
    ones = np.ones(rows.size, dtype=np.float32)
    return sp.csr_matrix((ones, (rows, columns)), shape=(nodes, nodes))
