"""Adding a dataset is one entry: a decorated function for a generated graph, one `Dataset` for a published one.

Nothing else is edited: `load_graph`, runs, natural clients, the listing and error texts know it by its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

import fedquilt
from fedquilt.cli import main
from fedquilt.datasets.catalogue import CATALOGUE, natural_clients, register, register_synthetic
from fedquilt.datasets.dataset import Dataset
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import read_npz
from fedquilt.graphs.protocol import Protocol


def shops_of(nodes: int, shops: int, seed: int) -> np.ndarray:
    return np.arange(nodes) * shops // nodes


@pytest.fixture
def shops() -> Iterator[None]:
    """A generated dataset of customers, each a customer of one shop."""

    @register_synthetic(
        "shops",
        "customers of a few shops",
        size=(60, 0, 4, 2),
        protocol=Protocol(rounds=3),
        natural_clients=shops_of,
    )
    def shops(nodes: int = 60, shops: int = 3, seed: int = 0) -> Graph:
        rng = np.random.default_rng(seed)
        y = np.arange(nodes) % 2
        edges = np.stack([np.arange(nodes - 2), np.arange(2, nodes)])
        return Graph.from_arrays("shops", edges, rng.normal(size=(nodes, 4)) + y[:, None], y)

    yield
    CATALOGUE.remove("shops")


class ListedEdges:
    """Raw files of a made-up route: one text file of edges."""

    folder = "listed"
    description = "a list of edges, placed by you"

    def read(self, name: str, parameters: Mapping[str, str], folder: Path) -> Graph:
        edges = np.loadtxt(folder / "edges.txt", dtype=np.int64).T
        return Graph.from_arrays(name, edges, np.eye(4), np.array([0, 1, 0, 1]))


@pytest.fixture
def listed() -> Iterator[None]:
    """A published dataset that comes from a route of its own."""
    register(Dataset("listed", "four nodes", *(4, 3, 4, 2), Protocol(), ListedEdges(), sparse=True))
    yield
    CATALOGUE.remove("listed")


@pytest.mark.usefixtures("shops")
def test_a_generated_dataset_runs_by_name_with_its_natural_clients() -> None:
    run = fedquilt.run("fedavg", "shops:shops=4", partition="natural")
    assert run.result["clients"] == 4
    assert run.result["rounds"] == 3  # of its protocol
    assert natural_clients("shops:nodes=6").tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.usefixtures("shops")
def test_it_is_listed_and_offered_where_a_name_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["datasets"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "shops" in line]
    assert "customers of a few shops" in line
    assert "built in" in line
    with pytest.raises(FedquiltError, match="There is no dataset 'shosp'; did you mean 'shops'"):
        fedquilt.load_graph("shosp")
    with pytest.raises(FedquiltError, match="'shops' has no parameter 'size'; write it like shops:nodes=60, shops=3"):
        fedquilt.load_graph("shops:size=3")


@pytest.mark.usefixtures("listed")
def test_a_published_dataset_is_read_from_its_raw_files_and_stored(tmp_path: Path) -> None:
    (tmp_path / "raw" / "listed").mkdir(parents=True)
    (tmp_path / "raw" / "listed" / "edges.txt").write_text("0 1\n1 2\n2 3\n")
    graph, protocol = fedquilt.load_graph("listed", tmp_path)
    assert graph.edges.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert graph.sparse
    assert protocol == Protocol()
    assert read_npz(tmp_path / "listed.npz").nodes == 4
    (tmp_path / "raw" / "listed" / "edges.txt").unlink()
    assert fedquilt.load_graph("listed", tmp_path)[0].nodes == 4
    with pytest.raises(FedquiltError, match="listed has no natural clients"):
        fedquilt.run("fedavg", "listed", partition="natural", data=str(tmp_path))
