"""The figures of a graph, against networkx and by hand."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from fedquilt.graphs.check import describe_graph
from fedquilt.graphs.graph import Graph
from support.graphs import graphs, tiny


@given(graphs())
def test_figures_agree_with_networkx(graph: Graph) -> None:
    report = describe_graph(graph)
    other = nx.Graph(list(map(tuple, graph.edges.T)))
    other.add_nodes_from(range(graph.nodes))
    assert report.clustering == pytest.approx(nx.average_clustering(other))
    assert report.components == nx.number_connected_components(other)
    assert report.isolated == nx.number_of_isolates(other)
    assert sum(report.class_counts) + report.unlabelled == report.nodes
    same = [graph.y[u] == graph.y[v] for u, v in other.edges if min(graph.y[u], graph.y[v]) >= 0]
    assert np.isnan(report.homophily) if not same else report.homophily == pytest.approx(np.mean(same))


def test_rows() -> None:
    masks = {part: np.arange(4) == number for number, part in enumerate(("train", "val", "test"))}
    rows = dict(describe_graph(tiny(masks=masks)).rows())
    assert rows["nodes"] == "4"
    assert rows["nodes in each class"] == "1, 2"
    assert rows["edge homophily"] == "0.500"
    assert rows["given split"] == "1 train, 1 val, 1 test"
    assert dict(describe_graph(tiny()).rows())["given split"] == "none"


def test_warnings() -> None:
    graph = tiny(
        edges=np.zeros((2, 0), int),
        x=np.array([[0, 1]] * 4),
        y=np.array([0, 0, 0, 1]),
        class_names=("no", "yes"),
    )
    warnings = " ".join(describe_graph(graph).warnings)
    assert "4 of 4 nodes have no edge" in warnings
    assert "Fewer than 3 nodes in class 'yes'" in warnings
    assert "1 of 2 features are 0 for every node" in warnings
    assert "There are no edges" in warnings
    assert dict(describe_graph(graph).rows())["edge homophily"] == "-"
    mostly = tiny(edges=np.array([[0], [1]]), x=np.ones((20, 1)), y=np.array([0] + [-1] * 19))
    assert any("More than nine in ten nodes are unlabelled" in warning for warning in describe_graph(mostly).warnings)
    sound = tiny(edges=np.array([[0, 2, 4], [1, 3, 5]]), x=np.ones((6, 1)), y=np.array([0, 0, 0, 1, 1, 1]))
    assert describe_graph(sound).warnings == ()
