"""Finding a graph, wherever it is."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedquilt.datasets.catalogue import CATALOGUE
from fedquilt.datasets.load import data_folder, load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.protocol import Protocol
from support.graphs import assert_same, tiny


def test_by_name_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_npz(tiny(), tmp_path / "cora.npz")
    graph, protocol = load_graph("cora", tmp_path)
    assert graph.name == "cora"
    assert protocol == CATALOGUE.find("cora").protocol
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    assert_same(load_graph("Cora")[0], graph)


@pytest.mark.parametrize("name", ["squirrel", "chameleon", "cora"])
def test_the_copies_that_a_dataset_is_known_to_have_are_marked(tmp_path: Path, name: str) -> None:
    star = tiny(edges=np.array([[0, 0, 0], [1, 2, 3]]))
    write_npz(star, tmp_path / f"{name}.npz")
    copies = load_graph(name, tmp_path)[0].copies
    assert copies is None if name == "cora" else copies.tolist() == [0, 1, 1, 1]
    assert load_graph(tmp_path / f"{name}.npz")[0].copies is None


def test_credit_prefers_the_plain_name(tmp_path: Path) -> None:
    write_npz(tiny(), tmp_path / "credit-137k.npz")
    assert load_graph("credit", tmp_path)[0].name == "credit-137k"
    write_npz(tiny(), tmp_path / "credit.npz")
    assert load_graph("credit", tmp_path)[0].name == "credit"


def test_by_path(tmp_path: Path) -> None:
    write_npz(tiny(), tmp_path / "mine.npz")
    for source in (tmp_path / "mine.npz", str(tmp_path / "mine.npz")):
        graph, protocol = load_graph(source)
        assert_same(graph, tiny())
        assert protocol == Protocol()


def test_from_python() -> None:
    graph = tiny()
    assert load_graph(graph) == (graph, Protocol())
    assert np.array_equal(load_graph(graph.to_data())[0].edges, graph.edges)
    with pytest.raises(FedquiltError, match="A list is not a graph; give a dataset's name, a path"):
        load_graph([1, 2])  # type: ignore[arg-type]


def test_not_there(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="There is no dataset 'pubmd'; did you mean 'pubmed'"):
        load_graph("pubmd")
    for source in (tmp_path / "nothing", str(tmp_path / "nothing.npz"), "nothing.npz"):
        with pytest.raises(FedquiltError, match="There is no file or folder") as caught:
            load_graph(source)
        assert ("or a dataset's name" in str(caught.value)) == isinstance(source, str)


def test_where_graphs_are_sought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path / "chosen"))
    assert data_folder(tmp_path) == tmp_path
    assert data_folder() == tmp_path / "chosen"
    monkeypatch.delenv("FEDQUILT_DATA")
    assert data_folder().parts[-2:] == ("fedquilt", "graphs")


def test_importing_is_light() -> None:
    heavy = ("torch", "igraph", "pyarrow", "ogb")
    code = (
        f"import sys, fedquilt.datasets, fedquilt.partition; print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_graph_that_need_not_be_labelled(tmp_path: Path) -> None:
    """As for predictions: without a label, and in a file without `y`."""
    graph = tiny()
    blank = replace(graph, y=np.full(graph.nodes, -1), classes=0)
    np.savez(tmp_path / "bare.npz", edge_index=graph.edges, x=graph.x)
    np.savez(tmp_path / "blank.npz", edge_index=graph.edges, x=graph.x, y=blank.y)
    data = graph.to_data()
    data.y = None
    for source in (blank, tmp_path / "bare.npz", tmp_path / "blank.npz", data):
        assert_same(load_graph(source, labelled=False)[0], blank)
        with pytest.raises(FedquiltError, match=r"no labelled node|no array 'y'|no `y`"):
            load_graph(source)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x/" * 2500, "is no path of a graph (File name too long)"),
        ("x" * 5000 + ".npz", "is no path of a graph (File name too long)"),
        ("a\0b.npz", "The path of the graph has a NUL character"),
        ("\udcff.npz", "The path of the graph has a character that is not text"),
        ("~nobody-is-called-so/x.npz", "is no path of a graph"),
    ],
)
def test_paths_that_are_none(source: str, says: str) -> None:
    for given in (source, Path(source)):
        with pytest.raises(FedquiltError) as error:
            load_graph(given)
        assert says in str(error.value)
        assert len(str(error.value)) < 400
