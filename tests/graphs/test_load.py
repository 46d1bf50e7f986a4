"""Finding a graph, wherever it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs import Protocol, data_folder, load_graph, write_npz
from fedquilt.graphs.catalogue import CATALOGUE

from .helpers import assert_same, tiny


def test_by_name_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_npz(tiny(), tmp_path / "cora.npz")
    graph, protocol = load_graph("cora", tmp_path)
    assert graph.name == "cora"
    assert protocol == CATALOGUE["cora"].protocol
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path))
    assert_same(load_graph("Cora")[0], graph)


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
        with pytest.raises(FedquiltError, match="There is no file or folder"):
            load_graph(source)


def test_where_graphs_are_sought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path / "chosen"))
    assert data_folder(tmp_path) == tmp_path
    assert data_folder() == tmp_path / "chosen"
    monkeypatch.delenv("FEDQUILT_DATA")
    assert data_folder().parts[-2:] == ("fedquilt", "graphs")


def test_importing_is_light() -> None:
    heavy = ("torch", "igraph", "pyarrow", "ogb")
    code = f"import sys, fedquilt.graphs; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
