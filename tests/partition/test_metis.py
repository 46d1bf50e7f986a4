from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.metis import cut
from support.partitions import cliques, graphs, random_graph


@given(graphs(), st.data())
def test_every_part_has_a_node(graph: Graph, data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, graph.nodes))
    labels = cut(graph, parts)
    assert labels.shape == (graph.nodes,)
    assert labels.dtype == np.int64
    assert np.array_equal(np.unique(labels), np.arange(parts))


def test_as_many_parts_as_nodes() -> None:
    assert np.array_equal(np.sort(cut(random_graph(30), 30)), np.arange(30))


def test_cut_depends_on_the_graph_alone() -> None:
    graph = random_graph(200, 0.03)
    shuffled = replace(graph, edges=graph.edges[:, np.random.default_rng(1).permutation(graph.edges.shape[1])])
    assert np.array_equal(cut(graph, 7), cut(graph, 7))
    assert np.array_equal(cut(graph, 7), cut(shuffled, 7))


def test_cut_leaves_cliques_whole() -> None:
    labels = cut(cliques(20, 20, 20), 3)
    assert all(np.unique(labels[start : start + 20]).size == 1 for start in (0, 20, 40))


def test_one_cut_serves_all_seeds_and_cannot_be_spoilt(monkeypatch: pytest.MonkeyPatch) -> None:
    import pymetis

    calls = []
    real = pymetis.part_graph
    monkeypatch.setattr(pymetis, "part_graph", lambda *given, **options: calls.append(1) or real(*given, **options))
    graph = random_graph(90, 0.05, seed=77)
    first = cut(graph, 4)
    kept = first.copy()
    first[:] = 0
    again = cut(replace(graph, name="another"), 4)
    assert np.array_equal(again, kept)
    assert len(calls) == 1
    other = cut(random_graph(90, 0.05, seed=78), 4)
    assert not np.array_equal(other, kept)
    assert len(calls) == 2


@pytest.mark.parametrize("parts", [0, -1])
def test_no_part_is_an_error(parts: int) -> None:
    with pytest.raises(FedquiltError, match="at least one"):
        cut(random_graph(5), parts)


def test_more_parts_than_nodes_is_an_error() -> None:
    with pytest.raises(FedquiltError, match=r"'toy' has 5 nodes and cannot be cut into 6 parts"):
        cut(random_graph(5), 6)


def test_a_library_that_memory_has_no_room_for_is_not_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoRoom:
        def __getattr__(self, name: str) -> None:
            raise ImportError("libmetis.so: failed to map segment from shared object")

    monkeypatch.setitem(sys.modules, "pymetis", NoRoom())
    with pytest.raises(ImportError, match="failed to map"):
        cut(random_graph(5), 2)


def test_without_pymetis_the_error_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(FedquiltError, match=r"pymetis.*saved partition"):
        cut(random_graph(5), 2)
