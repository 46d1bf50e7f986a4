"""Small graphs for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from fedquilt.graphs.graph import Graph


def tiny(**changes: object) -> Graph:
    """Four nodes in a path; any argument of `Graph.from_arrays` can be replaced."""
    parts: dict[str, object] = {
        "name": "tiny",
        "edges": np.array([[0, 1, 2], [1, 2, 3]]),
        "x": np.eye(4, 3),
        "y": np.array([0, 1, 1, -1]),
    }
    return Graph.from_arrays(**{**parts, **changes})  # type: ignore[arg-type]


@st.composite
def graphs(draw: Callable[..., object]) -> Graph:
    """Any sound graph of up to 12 nodes, with or without masks, ids and sparse features."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    nodes = draw(st.integers(1, 12))
    edges = rng.integers(0, nodes, (2, draw(st.integers(0, 30))))
    x = (rng.normal(size=(nodes, 3)) if draw(st.booleans()) else rng.integers(0, 2, (nodes, 3))).astype(np.float32)
    y = rng.integers(-1, 3, nodes)
    y[0] = 0
    part = rng.integers(0, 4, nodes)
    masks = {name: part == number for number, name in enumerate(("train", "val", "test"))}
    return Graph.from_arrays(
        "any",
        edges,
        sp.csr_matrix(x) if draw(st.booleans()) else x,
        y,
        classes=draw(st.sampled_from([None, 5])),
        masks=masks if draw(st.booleans()) else None,
        ids=np.array([f"n{number}" for number in range(nodes)]) if draw(st.booleans()) else None,
    )


def dense(graph: Graph) -> np.ndarray:
    """A graph's features as an array, however they are stored."""
    return graph.x.toarray() if sp.issparse(graph.x) else graph.x


def assert_same(one: Graph, two: Graph) -> None:
    """All fields but the name are equal."""
    assert np.array_equal(one.edges, two.edges)
    assert one.sparse == two.sparse
    assert np.array_equal(dense(one), dense(two))
    assert one.x.dtype == two.x.dtype == np.float32
    assert np.array_equal(one.y, two.y)
    assert one.classes == two.classes
    assert one.class_names == two.class_names
    assert one.feature_names == two.feature_names
    assert (one.masks is None) == (two.masks is None)
    for part, mask in (one.masks or {}).items():
        assert np.array_equal(mask, two.masks[part])
    assert (one.ids is None) == (two.ids is None)
    assert one.ids is None or np.array_equal(one.ids, two.ids)
