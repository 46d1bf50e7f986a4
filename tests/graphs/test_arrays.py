"""Loosely given arrays are cleaned."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.graphs.arrays import as_sparse, feature_array, undirected
from support.graphs import tiny


def test_what_is_loose_is_put_right() -> None:
    graph = tiny(y=np.array([0, np.nan, 2, 1]), x=np.ones((4, 2), dtype=bool))
    assert graph.y.tolist() == [0, -1, 2, 1]
    assert graph.y.dtype == np.int64
    assert graph.x.dtype == np.float32
    assert graph.classes == 3
    assert tiny(y=np.array([True, False, True, True])).y.tolist() == [1, 0, 1, 1]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40))
def test_undirected_keeps_each_pair_once(pairs: list[tuple[int, int]]) -> None:
    edges = undirected(np.array(pairs, dtype=int).reshape(-1, 2).T, 10)
    assert [tuple(edge) for edge in edges.T] == sorted({(min(p), max(p)) for p in pairs if p[0] != p[1]})
    assert np.array_equal(undirected(np.concatenate([edges, edges[::-1]], axis=1), 10), edges)


def test_sparse_features_stay_sparse_and_duplicates_are_summed() -> None:
    doubled = sp.coo_matrix(([1.0, 2.0, 4.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    features = feature_array(doubled, "here")
    assert isinstance(features, sp.csr_matrix)
    assert features.dtype == np.float32
    assert features.toarray().tolist() == [[0, 3], [4, 0]]
    assert features.nnz == 2
    assert as_sparse(features) is features
    assert as_sparse(features.toarray()).nnz == 2
