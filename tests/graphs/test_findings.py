"""What may surprise in a graph, and what training does about it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.graphs.findings import Finding, column_figures, findings_of
from fedquilt.graphs.graph import Graph


def graph_of(x: np.ndarray, y: np.ndarray | None = None, edges: np.ndarray | None = None, **more: object) -> Graph:
    nodes = x.shape[0]
    y = np.arange(nodes) % 2 if y is None else y
    edges = np.stack([np.arange(nodes - 2), np.arange(2, nodes)]) if edges is None else edges
    return Graph.from_arrays("g", edges, x, y, **more)


def found(graph: Graph, own: bool = True) -> dict[str, Finding]:
    return {finding.topic: finding for finding in findings_of(graph, own)}


def test_scale_and_outliers_by_name() -> None:
    rng = np.random.default_rng(0)
    income = np.exp(rng.normal(10, 1.5, 500))
    x = np.stack([rng.normal(45, 10, 500), income, rng.normal(0, 0.01, 500), rng.integers(0, 2, 500)], axis=1)
    graph = graph_of(x, feature_names=("age", "income", "lab", "smoker"))
    scale = found(graph)["scale"]
    assert scale.warning
    assert scale.found.startswith("'income' has values from ")
    assert "and 'lab' has values from -0.0" in scale.found
    assert "standardises each numeric column, robust to outliers (--prepare standard" in scale.done
    assert "columns of 0 and 1 stay" in scale.done
    outliers = found(graph)["outliers"]
    assert "1 column is skewed or has outliers ('income'" in outliers.found
    assert "protocol" in found(graph, own=False)["scale"].done
    assert not found(graph, own=False)["scale"].warning


def test_equal_scales_are_no_warning_and_counts_are_rows() -> None:
    rng = np.random.default_rng(0)
    assert not found(graph_of(rng.normal(size=(200, 3))))["scale"].warning
    counts = sp.random(200, 50, 0.1, format="csr", random_state=0)
    assert "--prepare rows" in found(graph_of(counts))["scale"].done
    wide = (rng.random((200, 100)) < 0.05) * rng.integers(1, 5, (200, 100))
    assert "--prepare rows" in found(graph_of(wide))["scale"].done


def test_constant_columns() -> None:
    x = np.column_stack([np.arange(10), np.full(10, 7), np.zeros(10)])
    assert found(graph_of(x))["constant columns"].found == (
        "2 of 3 features have one value for every node (column 2, column 3)"
    )
    assert found(graph_of(x[:, [0, 2]]))["constant columns"].found == "1 of 2 features are 0 for every node (column 2)"
    assert "constant columns" not in found(graph_of(x[:, :1]))


def test_imbalance_says_what_always_guessing_gives() -> None:
    y = np.array([0] * 175 + [1] * 25)
    one = found(graph_of(np.arange(200.0)[:, None], y, class_names=("well", "ill")))["imbalance"]
    assert one.found == "87.5% of the labelled nodes are in class 'well' (175) and 25 in class 'ill'"
    assert "always answers 'well' has accuracy 87.50" in one.done
    assert "--class-weights balanced" in one.done
    assert "imbalance" not in found(graph_of(np.arange(200.0)[:, None]))


def test_homophily_against_chance() -> None:
    x = np.arange(40.0)[:, None]
    assert not found(graph_of(x))["homophily"].warning  # i - i+2: one class
    ring = np.stack([np.arange(39), np.arange(1, 40)])
    assert found(graph_of(x, edges=ring))["homophily"].warning
    assert (
        "100.0% of the edges join nodes of one class, where chance would join 50.0%"
        in found(graph_of(x))["homophily"].found
    )


def test_edges_components_and_isolated_nodes() -> None:
    x = np.arange(9.0)[:, None]
    graph = graph_of(x, edges=np.array([[0, 1, 4], [1, 2, 5]]))
    assert "4 of 9 nodes have no edge" in found(graph)["isolated nodes"].found
    assert found(graph)["components"].found == (
        "The graph has 6 parts that no edge joins; the largest has 33.3% of the nodes"
    )
    assert "There are no edges" in found(graph_of(x, edges=np.zeros((2, 0), int)))["edges"].found


def test_unlabelled_nodes() -> None:
    x = np.arange(20.0)[:, None]
    some = found(graph_of(x, np.array([0] * 10 + [1] * 5 + [-1] * 5)))["unlabelled"]
    assert (some.found, some.warning) == ("5 of 20 nodes have no label", False)
    assert found(graph_of(x, np.array([0] + [-1] * 19)))["unlabelled"].warning


def test_rows_of_columns_begin_with_the_widest_scale() -> None:
    x = np.stack([np.arange(100) * 0.1, np.arange(100) * 1000.0, np.arange(100) % 2], axis=1)
    rows = column_figures(x).rows(("small", "wide", "binary"))
    assert [row[0] for row in rows] == ["wide", "small"]
    assert rows[0][1:3] == ("0", "9.9e+04")
    assert len(column_figures(x).rows(None, most=1)) == 1
    assert column_figures(x).rows(None)[0][0] == "column 2"


@pytest.mark.parametrize("sparse", [False, True])
def test_figures_of_columns(sparse: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 300)) * (rng.random((1000, 300)) < 0.5)
    x[0, 0] = 1000
    x = x.astype(np.float32)
    figures = column_figures(sp.csr_matrix(x) if sparse else x)
    assert figures.high[0] == 1000
    assert figures.far[0] > 500
    assert figures.skew[0] > 20
    assert (figures.far[1:] < 15).all()
    low, high = np.quantile(x[:, 5], (0.05, 0.95))
    assert figures.deviation[5] == pytest.approx(np.clip(x[:, 5], low, high).std(), rel=1e-4)
