"""The largest component and normalised features."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given

from fedquilt.graphs.graph import Graph
from fedquilt.graphs.prepare import largest_component, normalise, prepare
from fedquilt.graphs.protocol import Protocol
from support.graphs import dense, graphs, tiny


def test_largest_component_keeps_order() -> None:
    graph = tiny(edges=np.array([[1, 2], [3, 3]]))
    kept = largest_component(graph)
    assert kept.y.tolist() == [1, 1, -1]
    assert kept.edges.tolist() == [[0, 1], [2, 2]]


@given(graphs())
def test_largest_component_is_connected_and_stable(graph: Graph) -> None:
    kept = largest_component(graph)
    assert kept.edges.shape[1] >= kept.nodes - 1
    assert largest_component(kept) is kept


@given(graphs())
def test_rows_sum_to_one_or_nothing(graph: Graph) -> None:
    x = normalise(graph.x)
    sums = np.abs(x.toarray() if sp.issparse(x) else x).sum(axis=1)
    nothing = np.abs(dense(graph)).sum(axis=1) == 0
    assert np.allclose(sums, np.where(nothing, 0, 1), atol=1e-5)
    assert sp.issparse(x) == graph.sparse
    assert x.dtype == np.float32


def test_a_protocol_that_asks_for_nothing_changes_nothing() -> None:
    graph = tiny()
    assert prepare(graph, Protocol()) is graph
