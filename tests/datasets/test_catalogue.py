"""The catalogue: names, parameters, protocols."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.datasets.catalogue import CATALOGUE, choose, datasets
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.prepare import prepare

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
    "patchwork",
    "communities-1",
    "communities-3",
    "mosaic",
]


def test_names_are_all_there_and_described() -> None:
    assert sorted(NAMES) == sorted(dataset.name for dataset in datasets())
    for dataset in datasets():
        assert dataset.description
        assert dataset.fetched
        assert min(dataset.nodes, dataset.edges, dataset.features, dataset.classes) > 0
        assert sum(dataset.protocol.split) == pytest.approx(1)


def test_protocols() -> None:
    of = {name: dataset.protocol for name, dataset in CATALOGUE.items()}
    assert {name for name in NAMES if of[name].metric == "auc"} == {
        "minesweeper",
        "tolokers",
        "questions",
        "credit",
    }
    whole = {"cora", "citeseer", "pubmed", "amazon-photo", "amazon-computers"}
    assert {name for name in NAMES if of[name].largest_component} == whole
    assert {name for name in NAMES if of[name].normalise_features} == whole
    schedule = {name: (of[name].rounds, of[name].epochs) for name in NAMES}
    assert schedule["cora"] == schedule["pubmed"] == schedule["tolokers"] == schedule["patchwork"] == (100, 1)
    assert schedule["amazon-photo"] == schedule["ogbn-arxiv"] == (200, 2)
    assert schedule["amazon-computers"] == (200, 3)
    assert schedule["communities-1"] == schedule["communities-3"] == (100, 3)
    for name in ("squirrel", "chameleon", "actor", "syn-cora", "flickr", "credit"):
        assert (of[name].split, *schedule[name]) == ((0.6, 0.2, 0.2), 200, 1)
    assert of["ogbn-arxiv"].split == (0.05, 0.475, 0.475)
    assert of["cora"].split == (0.2, 0.4, 0.4)


def test_parameters() -> None:
    assert choose("syn-cora").files == ["syn-cora-h0.30-r1"]
    assert choose("syn-cora:h=0.5,r=2").files == ["syn-cora-h0.50-r2"]
    assert choose("syn-cora:h=1").files == ["syn-cora-h1.00-r1"]
    assert choose("Cora").dataset.name == "cora"
    assert choose("credit").files == ["credit", "credit-137k"]


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
        ("corra", "There is no dataset 'corra'; did you mean 'cora'?"),
        ("syn-cora:q=1", "'syn-cora' has no parameter 'q'; write it like syn-cora:h=0.30, r=1"),
        ("cora:h=1", "'cora' has no parameter 'h'; it takes none"),
        ("syn-cora:h=2", "'2' is not a homophily"),
        ("syn-cora:h=x", "'x' is not a homophily for syn-cora; write a number from 0 to 1, such as h=0.30, or h=all."),
        ("syn-cora:r=all", "'all' is not a value for r of syn-cora"),
        ("syn-cora:r=one", "'one' is not a value for r of syn-cora; write a whole number"),
    ],
)
def test_faults(name: str, message: str) -> None:
    with pytest.raises(FedquiltError) as caught:
        choose(name)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("ogbn-arxiv", "flickr")])
def test_figures_are_those_of_the_graph(name: str, data_folder: Path) -> None:
    generated = CATALOGUE[name].route == "generated"
    if not generated and not any((data_folder / f"{file}.npz").exists() for file in choose(name).files):
        pytest.skip(f"{name} is not in the data folder")
    graph, _ = load_graph(name, data_folder)
    entry = CATALOGUE[name]
    figures = (graph.nodes, graph.edges.shape[1], graph.features, graph.classes)
    assert figures == (entry.nodes, entry.edges, entry.features, entry.classes)
    assert generated or graph.sparse == entry.sparse


@pytest.mark.parametrize(
    ("name", "nodes", "directed_edges"),
    [
        ("cora", 2485, 10138),
        ("citeseer", 2120, 7358),
        ("pubmed", 19717, 88648),
        ("amazon-computers", 13381, 491556),
        ("amazon-photo", 7487, 238086),
    ],
)
def test_largest_components_are_the_papers(name: str, nodes: int, directed_edges: int, data_folder: Path) -> None:
    graph = prepare(*load_graph(name, data_folder))
    assert (graph.nodes, 2 * graph.edges.shape[1]) == (nodes, directed_edges)
