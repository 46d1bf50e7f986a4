"""syn-cora: its parameters, and all homophily levels side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedquilt.datasets.catalogue import CATALOGUE, choose, natural_clients, register
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.union import disjoint_union
from support.graphs import assert_same, dense, tiny


def test_all_homophily_levels_are_eleven_graphs_of_one_repetition() -> None:
    choice = choose("Syn-Cora:r=2,h=All")
    assert choice.name == "syn-cora:h=all,r=2"
    levels = ("0.00", "0.10", "0.20", "0.30", "0.40", "0.50", "0.60", "0.70", "0.80", "0.90", "1.00")
    assert [part.files for part in choice.parts] == [[f"syn-cora-h{level}-r2"] for level in levels]
    assert choose("syn-cora:h=all").parts[3] == choose("syn-cora")
    for one in ("syn-cora", "syn-cora:h=0.99", "cora", "patchwork"):
        assert choose(one).parts == []
    assert choose("cora").name == "cora"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("syn-cora:h=2", "'2' is not a homophily"),
        ("syn-cora:h=x", "'x' is not a homophily for syn-cora; write a number from 0 to 1, such as h=0.30, or h=all."),
        ("syn-cora:r=all", "'all' is not a value for r of syn-cora"),
    ],
)
def test_wrong_parameters(name: str, message: str) -> None:
    with pytest.raises(FedquiltError) as caught:
        choose(name)
    assert message in str(caught.value)


@pytest.fixture
def levels(tmp_path: Path) -> Iterator[list[Graph]]:
    """A tiny graph for each homophily level, as files; the catalogue says they are tiny."""
    entry = CATALOGUE.find("syn-cora")
    CATALOGUE.remove("syn-cora")
    register(replace(entry, nodes=4, features=3, classes=2))
    graphs = [tiny(x=(level + 1) * np.eye(4, 3)) for level in range(11)]
    for level, graph in enumerate(graphs):
        write_npz(graph, tmp_path / f"syn-cora-h{level / 10:.2f}-r1.npz")
    yield graphs
    CATALOGUE.remove("syn-cora")
    register(entry)


def test_all_levels_are_read_as_one_graph_in_rising_order(levels: list[Graph], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    graph, protocol = load_graph("syn-cora:h=all", tmp_path)
    assert_same(graph, disjoint_union("all", levels))
    assert graph.name == "syn-cora:h=all,r=1"
    assert protocol == CATALOGUE.find("syn-cora").protocol
    clients = natural_clients("syn-cora:h=all")
    assert clients is not None
    for level, one in enumerate(levels):
        assert np.array_equal(dense(graph.subgraph(np.flatnonzero(clients == level))), dense(one))
    assert sorted(tmp_path.iterdir()) == before  # nothing is stored twice


def test_a_level_that_is_missing_or_another_graph_is_named(levels: list[Graph], tmp_path: Path) -> None:
    write_npz(tiny(x=np.eye(4)), tmp_path / "syn-cora-h0.40-r1.npz")
    with pytest.raises(FedquiltError) as caught:
        load_graph("syn-cora:h=all", tmp_path)
    assert str(caught.value) == (
        "syn-cora-h0.40-r1 has 4 nodes, 4 features and 2 classes, where syn-cora has 4 nodes, 3 features and 2 classes; "
        "get the published file."
    )
    (tmp_path / "syn-cora-h0.40-r1.npz").unlink()
    with pytest.raises(
        FedquiltError, match=r"syn-cora-h0.40-r1 is not in .* and cannot be downloaded: put syn-cora-h0"
    ):
        load_graph("syn-cora:h=all", tmp_path)
    with pytest.raises(FedquiltError, match=r"syn-cora-h0.00-r2 is not in"):
        load_graph("syn-cora:h=all,r=2", tmp_path)
