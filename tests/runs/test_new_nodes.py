"""A graph to predict for: read from files and objects, its features brought into the model's order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.methods.personal_model import Personal
from fedquilt.runs.new_nodes import check_fits, in_order, read_new_nodes
from support.named_runs import FEATURES, write_tables
from support.trained_sites import personal_of, trained


def three_features(tmp_path: Path) -> Personal:
    """A model whose three features are named."""
    method, clients, models = trained("fedavg")
    personal = personal_of(method, clients[0], models)
    context = replace(personal.method.context, features=3)
    return replace(personal, method=type(method)(method.settings, context), feature_names=FEATURES)


def test_features_are_taken_by_name(tmp_path: Path) -> None:
    personal = three_features(tmp_path)
    right, turned = write_tables(tmp_path / "a"), write_tables(tmp_path / "b", features=FEATURES[::-1])
    one, two = (read_new_nodes(folder, personal).graph for folder in (right, turned))
    assert load_graph(turned)[0].feature_names == FEATURES[::-1]
    assert one.feature_names == two.feature_names == FEATURES
    assert np.array_equal(one.x, two.x)
    sparse = replace(load_graph(turned)[0], x=sp.csr_matrix(load_graph(turned)[0].x))
    assert np.array_equal(in_order(sparse, personal).x.toarray(), one.x)


def test_a_table_of_nodes_alone_has_no_edges_and_says_so(tmp_path: Path) -> None:
    personal = three_features(tmp_path)
    folder = write_tables(tmp_path / "a", nodes=5)
    (folder / "edges.csv").unlink()
    new = read_new_nodes(str(folder / "nodes.csv"), personal)
    assert new.graph.edges.shape == (2, 0)
    assert new.graph.ids is not None
    assert new.graph.ids.tolist() == ["p0", "p1", "p2", "p3", "p4"]
    assert "nodes.csv is a table of nodes without edges" in new.warnings[0]
    (tmp_path / "bare.csv").write_text("id,dose,risk,age\nx,1,2,3\n")
    bare = read_new_nodes(tmp_path / "bare.csv", personal).graph
    assert bare.x.tolist() == [[3.0, 1.0, 2.0]]
    with pytest.raises(FedquiltError, match="There is no file or folder"):
        read_new_nodes(tmp_path / "none.csv", personal)


def test_other_features_are_refused(tmp_path: Path) -> None:
    personal = three_features(tmp_path)
    (tmp_path / "a.csv").write_text("id,age,dose\nx,1,2\n")
    with pytest.raises(FedquiltError, match="has no feature 'risk', which the model was trained on"):
        read_new_nodes(tmp_path / "a.csv", personal)
    (tmp_path / "b.csv").write_text("id,age,dose,risk,height\nx,1,2,3,4\n")
    with pytest.raises(FedquiltError, match="has a feature 'height', which the model was not trained on"):
        read_new_nodes(tmp_path / "b.csv", personal)
    graph = load_graph(write_tables(tmp_path / "c"))[0]
    with pytest.raises(FedquiltError, match="has 2 features and the model was trained on 3"):
        check_fits(replace(graph, x=graph.x[:, :2], feature_names=None), personal)
