"""Feature noise: replace some features of a client's nodes by those of other nodes, to see how robust a method is.

With probability p, independently for each node i and feature f, x[i, f] becomes x[j, f] of a node j drawn evenly from all nodes
of the same client, i included. Whatever features are (zeros and ones, counts, measurements in any unit), a noisy one is a value
that occurs, and each feature stays distributed as it is in the client. With p = 1 a node's features say nothing about it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from fedquilt.graphs.arrays import Features
from fedquilt.graphs.graph import Graph


def with_feature_noise(graph: Graph, chance: float, rng: np.random.Generator) -> Graph:
    """Return a copy of the graph in which each feature of each node is another node's with probability `chance`.

    Takes O(N F) time for dense features, O(F + non-zeros) for sparse ones, which stay sparse.

    Args:
        graph: the graph; it is not changed.
        chance: p, in 0..1.
        rng: the random generator.
    """
    if chance <= 0:
        return graph
    return replace(graph, x=noisy_features(graph.x, chance, rng))


def noisy_features(x: Features, chance: float, rng: np.random.Generator) -> Features:
    """[N, F] features with noise."""
    if sp.issparse(x):
        return _sparse(x, chance, rng)
    out = x.copy()
    for column in range(x.shape[1]):  # a column at a time, so that little memory is needed
        rows = np.flatnonzero(rng.random(len(x)) < chance)
        out[rows, column] = x[rng.integers(len(x), size=rows.size), column]
    return out


def _sparse(x: sp.csr_matrix, chance: float, rng: np.random.Generator) -> sp.csr_matrix:
    """The same for a column with k non-zeros of n, without a look at its zeros.

    A cell gets a drawn non-zero with probability q = p k / n; otherwise a non-zero stays with probability (1 - p) / (1 - q).
    """
    columns, nodes = x.tocsc(), x.shape[0]
    rows, values, counts = [], [], np.zeros(x.shape[1] + 1, dtype=np.int64)
    for column in np.flatnonzero(np.diff(columns.indptr)):
        own = slice(columns.indptr[column], columns.indptr[column + 1])
        held, known = columns.indices[own], columns.data[own]
        q = chance * held.size / nodes
        drawn = rng.choice(nodes, rng.binomial(nodes, q), replace=False)
        kept = ~np.isin(held, drawn) & (rng.random(held.size) * (1 - q) < 1 - chance)
        rows.append(np.concatenate([held[kept], drawn]))
        values.append(np.concatenate([known[kept], known[rng.integers(held.size, size=drawn.size)]]))
        counts[column + 1] = rows[-1].size
    if not rows:
        return x.copy()
    shape = (np.concatenate(values), np.concatenate(rows), np.cumsum(counts))
    noisy = sp.csc_matrix(shape, shape=x.shape).tocsr()
    noisy.sort_indices()
    return noisy
