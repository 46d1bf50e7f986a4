"""The catalogue: names, parameters, protocols."""

from __future__ import annotations

import numpy as np
import pytest

from fedquilt.datasets.catalogue import (
    CATALOGUE,
    choose,
    datasets,
    in_catalogue,
    known_copies,
    natural_clients,
    node_groups,
    register_synthetic,
)
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.runs.config import RunConfig

NAMES = [
    "cora",
    "citeseer",
    "pubmed",
    "amazon-photo",
    "amazon-computers",
    "ogbn-arxiv",
    "roman-empire",
    "amazon-ratings",
    "minesweeper",
    "tolokers",
    "questions",
    "squirrel",
    "chameleon",
    "actor",
    "flickr",
    "syn-cora",
    "credit",
    "ieee-fraud",
    "patchwork",
    "communities-1",
    "communities-3",
    "houses",
    "mosaic",
]


def test_names_are_all_there_and_described() -> None:
    assert sorted(NAMES) == sorted(dataset.name for dataset in datasets())
    for dataset in datasets():
        assert dataset.description
        assert dataset.origin
        assert min(dataset.nodes, dataset.edges, dataset.features, dataset.classes) > 0
        assert sum(dataset.protocol.split) == pytest.approx(1)


def test_protocols() -> None:
    of = {name: dataset.protocol for name, dataset in CATALOGUE.all().items()}
    assert {name for name in NAMES if of[name].metric == "auc"} == {
        "minesweeper",
        "tolokers",
        "questions",
        "credit",
        "ieee-fraud",
    }
    whole = {"cora", "citeseer", "pubmed", "amazon-photo", "amazon-computers"}
    assert {name for name in NAMES if of[name].largest_component} == whole
    assert {name for name in NAMES if of[name].normalise_features} == whole
    schedule = {name: (of[name].rounds, of[name].epochs) for name in NAMES}
    assert schedule["cora"] == schedule["pubmed"] == schedule["tolokers"] == schedule["patchwork"] == (100, 1)
    assert schedule["amazon-photo"] == schedule["ogbn-arxiv"] == (200, 2)
    assert schedule["amazon-computers"] == (200, 3)
    assert schedule["communities-1"] == schedule["communities-3"] == (100, 3)
    for name in ("squirrel", "chameleon", "actor", "syn-cora", "flickr", "credit", "ieee-fraud"):
        assert (of[name].split, *schedule[name]) == ((0.6, 0.2, 0.2), 200, 1)
    assert of["ogbn-arxiv"].split == (0.05, 0.475, 0.475)
    assert of["cora"].split == (0.2, 0.4, 0.4)


def test_parameters() -> None:
    assert choose("syn-cora").files == ["syn-cora-h0.30-r1"]
    assert choose("syn-cora:h=0.5,r=2").files == ["syn-cora-h0.50-r2"]
    assert choose("syn-cora:h=1").files == ["syn-cora-h1.00-r1"]
    assert choose("Cora").dataset.name == "cora"
    assert choose("credit").files == ["credit", "credit-137k"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("corra", "There is no dataset 'corra'; did you mean 'cora'?"),
        ("syn-cora:q=1", "'syn-cora' has no parameter 'q'; write it like syn-cora:h=0.30, r=1"),
        ("cora:h=1", "'cora' has no parameter 'h'; it takes none"),
        ("syn-cora:r=one", "'one' is not a value for r of syn-cora; write a whole number"),
    ],
)
def test_faults(name: str, message: str) -> None:
    with pytest.raises(FedquiltError) as caught:
        choose(name)
    assert message in str(caught.value)


def test_natural_clients() -> None:
    for name, clients, nodes in (
        ("patchwork", 10, 140),
        ("communities-1", 50, 30),
        ("communities-3:seed=4", 20, 30),
    ):
        client = natural_clients(name)
        assert np.bincount(client).tolist() == [nodes] * clients
        assert len(client) == load_graph(name)[0].nodes
    for repetition in ("", ",r=3"):
        assert np.array_equal(natural_clients(f"syn-cora:h=all{repetition}"), np.repeat(np.arange(11), 1490))
    for name in ("cora", "syn-cora", "syn-cora:h=1.00"):
        assert natural_clients(name) is None
    assert natural_clients("somebody's own") is None


def test_known_copies() -> None:
    known = {
        name: known_copies(name) for name in ("squirrel", "Chameleon", "syn-cora:h=all", "syn-cora", "cora", "./cora")
    }
    assert known == {
        "squirrel": "neighbours",
        "Chameleon": "neighbours",
        "syn-cora:h=all": "features",
        "syn-cora": None,
        "cora": None,
        "./cora": None,
    }


def test_groups_of_nodes() -> None:
    assert [name for name in NAMES if node_groups(name) is not None] == ["patchwork"]
    assert node_groups("somebody's own") is None


def test_the_order_is_first_what_needs_no_file() -> None:
    assert datasets()[0].name == RunConfig().dataset  # the default is listed first
    needs_file = [dataset.raw is not None for dataset in datasets()]
    assert needs_file == sorted(needs_file)


def test_a_generated_dataset_takes_its_functions_arguments_as_parameters() -> None:
    @register_synthetic(
        "path", "nodes in a row", size=(4, 3, 1, 2), natural_clients=lambda nodes, **_: np.arange(nodes) // 2
    )
    def path(nodes: int = 4, seed: int = 0) -> Graph:
        x = np.full((nodes, 1), seed)
        return Graph.from_arrays("path", np.stack([np.arange(nodes - 1), np.arange(1, nodes)]), x, np.arange(nodes) % 2)

    try:
        assert choose("path:seed=7").parameters == {"nodes": "4", "seed": "7"}
        graph, _ = load_graph("Path:nodes=6,seed=2")
        assert graph.edges.tolist() == [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]
        assert graph.x.tolist() == [[2.0]] * 6
        assert natural_clients("path:nodes=5").tolist() == [0, 0, 1, 1, 2]
    finally:
        CATALOGUE.remove("path")
    assert not in_catalogue("path")
