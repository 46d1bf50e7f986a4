"""Which client holds each node, as a table or an npz file says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.given_clients import given_clients
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.tables import read_tables_fully

NODES = "id,label,f,client\na,0,1,north\nb,1,2,south\nc,0,3,north\n"


def test_a_column_named_client_is_no_feature(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text("a,b\n")
    assert given_clients(tmp_path).tolist() == ["north", "south", "north"]
    assert given_clients(tmp_path / "nodes.csv").tolist() == ["north", "south", "north"]
    found = read_tables_fully(tmp_path)
    assert found.clients.tolist() == ["north", "south", "north"]
    assert found.graph.feature_names == ("f",)
    write_npz(found.graph, tmp_path / "g.npz", clients=found.clients)
    assert given_clients(tmp_path / "g.npz").tolist() == ["north", "south", "north"]


def test_another_name_and_none(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES.replace("client", "Hospital").replace(",f,", ",client,"))
    (tmp_path / "edges.csv").write_text("a,b\n")
    (tmp_path / "graph.yaml").write_text("client: hospital\n")
    assert given_clients(tmp_path).tolist() == ["north", "south", "north"]
    assert read_tables_fully(tmp_path).graph.feature_names == ("client",)
    (tmp_path / "graph.yaml").write_text("client: null\ndrop: [hospital]\n")
    assert given_clients(tmp_path) is None
    write_npz(read_tables_fully(tmp_path).graph, tmp_path / "g.npz")
    assert given_clients(tmp_path / "g.npz") is None


def test_a_node_without_a_client(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES.replace("south", ""))
    (tmp_path / "edges.csv").write_text("a,b\n")
    with pytest.raises(FedquiltError, match="line 3: it has no client"):
        given_clients(tmp_path)


def test_clients_of_an_npz_may_be_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", y=np.zeros(3, int), client=np.array([0, 1, 0]))
    assert given_clients(tmp_path / "g.npz").tolist() == ["0", "1", "0"]
