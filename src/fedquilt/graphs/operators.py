"""Constant matrices of an undirected graph, built in one pass over its edges.

Edges are [2, E], each once with ``u < v``. If they are sorted, as in every `Graph`, the entries of each row are sorted too.
`weights` [E] are positive numbers, or None where all edges count the same; weights that are all one give the same bits.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def adjacency(edges: np.ndarray, nodes: int, weights: np.ndarray | None = None) -> sp.csr_matrix:
    """A: the symmetric [nodes, nodes] float32 matrix of ones, or of the edges' weights, without self-loops."""
    return _symmetric(edges, np.zeros(0, dtype=np.int64), nodes, weights)


def numbered_adjacency(edges: np.ndarray, nodes: int) -> sp.csr_matrix:
    """The symmetric [nodes, nodes] int32 matrix whose entries are the numbers of the edges, from one on."""
    numbers = np.arange(1, edges.shape[1] + 1, dtype=np.int32)
    return _symmetric(edges, np.zeros(0, dtype=np.int64), nodes, numbers, np.int32)


def degrees(edges: np.ndarray, nodes: int, weights: np.ndarray | None = None) -> np.ndarray:
    """[nodes] the row sums of A + I."""
    return _degree(_symmetric(edges, np.arange(nodes), nodes, weights), weights)


def gcn(
    edges: np.ndarray,
    nodes: int,
    looped: np.ndarray,
    weights: np.ndarray | None = None,
    degrees: np.ndarray | None = None,
) -> sp.csr_matrix:
    """D^-1/2 (A + I) D^-1/2, [nodes, nodes] float32, D the row sums of A + I (Kipf and Welling, 2017).

    A self-loop weighs one: give weights that are one on average.

    Args:
        edges: [2, E].
        nodes: the number of rows and columns.
        looped: the rows that are nodes and get a self-loop, sorted; any other row is padding and stays zero.
        weights: [E], or None.
        degrees: [nodes] the row sums of A + I, where the edges are only some of those of a larger graph; None: of all.
    """
    a = _symmetric(edges, looped, nodes, weights)
    scale = 1.0 / np.sqrt((_degree(a, weights) if degrees is None else degrees).astype(np.float32))
    return _scaled(a, np.repeat(scale, np.diff(a.indptr)), weights, scale)


def looped_adjacency(
    edges: np.ndarray, nodes: int, looped: np.ndarray, weights: np.ndarray | None = None
) -> sp.csr_matrix:
    """A + I, [nodes, nodes] float32: the sum over a node and its neighbours. The arguments are those of `gcn`."""
    return _symmetric(edges, looped, nodes, weights)


def neighbour_mean(edges: np.ndarray, nodes: int, weights: np.ndarray | None = None) -> sp.csr_matrix:
    """D^-1 A, [nodes, nodes] float32: the mean over neighbours, weighted; a node without any gets zero."""
    a = adjacency(edges, nodes, weights)
    return _scaled(a, np.repeat(1.0 / _degree(a, weights).astype(np.float32), np.diff(a.indptr)), weights)


def symmetric_normalised(edges: np.ndarray, nodes: int, weights: np.ndarray | None = None) -> sp.csr_matrix:
    """D^-1/2 A D^-1/2 without self-loops, [nodes, nodes] float64; a node without neighbours gets zero."""
    a = adjacency(edges, nodes, weights)
    scale = 1.0 / np.sqrt(_degree(a, weights))
    values = np.repeat(scale, np.diff(a.indptr)) * scale[a.indices]
    return sp.csr_matrix((values if weights is None else values * a.data, a.indices, a.indptr), shape=a.shape)


def _degree(a: sp.csr_matrix, weights: np.ndarray | None) -> np.ndarray:
    """The row sums of A, one for a row without entries: [nodes]. Weights are summed in double precision."""
    entries = np.diff(a.indptr)
    if weights is None:
        return np.maximum(entries, 1)
    sums = np.bincount(np.repeat(np.arange(entries.size), entries), a.data, minlength=entries.size)
    return np.where(entries > 0, sums, 1.0)


def _scaled(
    a: sp.csr_matrix, rows: np.ndarray, weights: np.ndarray | None, columns: np.ndarray | None = None
) -> sp.csr_matrix:
    """A, in place, with each entry replaced by its row's value [nnz] times its column's [nodes], times its weight."""
    values = rows
    if columns is not None:
        values *= columns[a.indices]
    if weights is not None:
        values *= a.data
    a.data = values
    return a


def _symmetric(
    edges: np.ndarray, loops: np.ndarray, nodes: int, weights: np.ndarray | None, kind: type = np.float32
) -> sp.csr_matrix:
    u, v = edges
    # First the entries left of the diagonal, then on it, then right of it: scipy keeps this order within each row.
    rows, columns = np.concatenate([v, loops, u]), np.concatenate([u, loops, v])
    values: np.ndarray = np.ones(rows.size, dtype=kind)
    if weights is not None:
        values[: u.size] = values[values.size - u.size :] = weights
    return sp.csr_matrix((values, (rows, columns)), shape=(nodes, nodes))
