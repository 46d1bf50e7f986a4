"""The figures of a graph, against networkx and by hand."""

from __future__ import annotations

from dataclasses import replace

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


def test_copies_that_give_labels_away_are_a_warning() -> None:
    rng = np.random.default_rng(0)
    hubs, y = 40, rng.integers(0, 3, 100).repeat(2)
    near = np.stack([rng.permutation(hubs)[:4] for _ in range(100)]).repeat(2, axis=0)
    edges = np.stack([hubs + np.arange(200).repeat(4), near.ravel()])
    labels = np.concatenate([np.full(hubs, -1), y])
    x = np.concatenate([rng.normal(size=(hubs, 2)), rng.normal(size=(100, 2)).repeat(2, axis=0)])
    graph = Graph.from_arrays("twins", edges, x, labels)
    report = describe_graph(graph)
    for kind in ("neighbours", "features"):
        assert any(
            f"100.0% of the labelled nodes have exactly the same {kind} as another one, which has the same label in 100%"
            in warning
            and warning.endswith(f"with --keep-copies {kind} (keep_copies: {kind} in a site.yaml).")
            for warning in report.warnings
        )
        assert dict(report.rows())[f"nodes with another's {kind}"].startswith("100.0%, same label 100.0% (other nodes")
    known = describe_graph(replace(graph, copies=np.arange(240)))
    assert any("unless --keep-copies never is given" in warning for warning in known.warnings)
    by_chance = replace(graph, y=np.where(labels < 0, -1, rng.integers(0, 3, 240)))
    assert not describe_graph(by_chance).warnings


def test_rows() -> None:
    masks = {part: np.arange(4) == number for number, part in enumerate(("train", "val", "test"))}
    rows = dict(describe_graph(tiny(masks=masks)).rows())
    named = describe_graph(tiny(class_names=("well", "ill")))
    assert dict(named.rows())["nodes in each class"] == "well 1, ill 2"
    assert rows["nodes"] == "4"
    assert rows["nodes in each class"] == "1, 2"
    assert rows["edge homophily"] == "0.500"
    assert rows["given split"] == "1 train, 1 val, 1 test"
    assert dict(describe_graph(tiny()).rows())["given split"] == "none"
    assert rows["nodes with another's neighbours"] == "none"


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
    assert "2 of 2 features have one value for every node" in warnings
    assert "There are no edges" in warnings
    assert dict(describe_graph(graph).rows())["edge homophily"] == "-"
    mostly = tiny(edges=np.array([[0], [1]]), x=np.ones((20, 1)), y=np.array([0] + [-1] * 19))
    assert any("More than nine in ten nodes are unlabelled" in warning for warning in describe_graph(mostly).warnings)
    sound = tiny(
        edges=np.array([[0, 1, 0, 3, 4, 3], [1, 2, 2, 4, 5, 5]]),
        x=np.arange(6.0)[:, None],
        y=np.array([0, 0, 0, 1, 1, 1]),
    )
    assert describe_graph(sound).warnings == ()
