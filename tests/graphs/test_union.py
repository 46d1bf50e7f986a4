"""Several graphs side by side as one."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.graphs.union import disjoint_union
from support.graphs import dense, tiny


@pytest.mark.parametrize(
    "kinds", [(np.asarray, np.asarray), (sp.csr_matrix, np.asarray), (sp.csr_matrix, sp.csr_matrix)]
)
def test_graphs_stand_side_by_side(kinds: tuple) -> None:
    first = tiny(x=kinds[0](np.eye(4, 3)))
    other = tiny(x=kinds[1](2 * np.eye(3)), y=np.array([1, 0, 1]), edges=np.array([[0], [2]]))
    both = disjoint_union("both", [first, other])
    both.validate()
    assert both.name == "both"
    assert both.edges.tolist() == [[0, 1, 2, 4], [1, 2, 3, 6]]
    assert both.y.tolist() == [0, 1, 1, -1, 1, 0, 1]
    assert both.classes == 2
    assert isinstance(both.x, sp.csr_matrix)
    assert both.x.dtype == np.float32
    assert np.array_equal(dense(both), np.concatenate([np.eye(4, 3), 2 * np.eye(3)]))
    for graph, nodes in ((first, np.arange(4)), (other, np.arange(4, 7))):
        part = both.subgraph(nodes)
        assert np.array_equal(part.edges, graph.edges)
        assert np.array_equal(part.y, graph.y)


def test_splits_and_names_of_nodes_do_not_come_along() -> None:
    masks = {"train": np.arange(4) == 0, "val": np.arange(4) == 1, "test": np.arange(4) == 2}
    graph = tiny(masks=masks, ids=np.array(list("abcd")))
    both = disjoint_union("both", [graph, graph])
    assert both.masks is None
    assert both.ids is None


def test_nodes_with_the_same_features_are_copies_of_one_thing() -> None:
    first = tiny(x=sp.csr_matrix(np.array([[1, 0, 2], [0, 0, 0], [1, 2, 0], [0, 0, 0]])))
    other = tiny(x=np.array([[1, 2, 0], [1, 0, 2], [2, 1, 0], [0, 0, 0]]))
    both = disjoint_union("both", [first, other])
    assert both.copies.tolist() == [0, 1, 2, 1, 2, 0, 3, 1]
    assert both.subgraph(np.array([2, 4, 6])).copies.tolist() == [2, 2, 3]
