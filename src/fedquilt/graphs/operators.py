"""Constant matrices of an undirected graph, built in one pass over its edges.

Edges are [2, E], each once with ``u < v``. If they are sorted, as in every `Graph`, the entries of each row are sorted too.
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
        nodes: the number of rows and columns.
        looped: the rows that are nodes and get a self-loop, sorted; any other row is padding and stays zero.
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
    # First the entries left of the diagonal, then on it, then right of it: scipy keeps this order within each row.
    rows, columns = np.concatenate([v, loops, u]), np.concatenate([u, loops, v])
    ones = np.ones(rows.size, dtype=np.float32)
    return sp.csr_matrix((ones, (rows, columns)), shape=(nodes, nodes))
