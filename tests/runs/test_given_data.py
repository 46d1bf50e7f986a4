"""The data of a run as Python gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.federated import FederatedGraph
from fedquilt.runs.given_data import named_data
from support.small_runs import own_graph


def test_names_paths_and_graphs() -> None:
    assert named_data("cora", {}) == ({"dataset": "cora"}, None)
    assert named_data(Path("a/b.npz"), {}) == ({"dataset": "a/b.npz"}, None)
    named, given = named_data(own_graph(30), {})
    assert (named, given[0].nodes) == ({"dataset": "@given"}, 30)


def test_paths_of_clients_are_the_option_and_other_graphs_are_joined() -> None:
    assert named_data(["a/", Path("b")], {}) == ({"clients_from": ["a/", "b"], "dataset": "@clients"}, None)
    assert named_data("patchwork", {"clients_from": ["a"]}) == ({"dataset": "@clients"}, None)
    named, given = named_data([own_graph(20), own_graph(30)], {})
    assert named == {"dataset": "@given", "partition": "natural"}
    assert isinstance(given[0], FederatedGraph)
    assert named_data({"n": own_graph(20)}, {})[1][0].client_names == ("n",)


def test_a_list_is_cut_already() -> None:
    with pytest.raises(
        FedquiltError, match="A list of graphs is cut already, a client each; leave out partition=disjoint"
    ):
        named_data([own_graph(20)], {"partition": "disjoint"})
    with pytest.raises(FedquiltError, match="leave out clients=3"):
        named_data(["a"], {"clients": 3})
    with pytest.raises(FedquiltError, match="given twice"):
        named_data(["a"], {"clients_from": ["b"]})
