"""The published datasets, where their files are at hand: sizes are those of the catalogue and the papers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.datasets.catalogue import CATALOGUE, choose, datasets
from fedquilt.datasets.load import load_graph
from fedquilt.graphs.prepare import prepare

NAMES = [dataset.name for dataset in datasets()]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("ogbn-arxiv", "flickr")])
def test_figures_are_those_of_the_graph(name: str, data_folder: Path) -> None:
    generated = CATALOGUE.find(name).generate is not None
    if not generated and not any((data_folder / f"{file}.npz").exists() for file in choose(name).files):
        pytest.skip(f"{name} is not in the data folder")
    graph, _ = load_graph(name, data_folder)
    entry = CATALOGUE.find(name)
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
