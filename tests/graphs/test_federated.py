"""Graphs of several owners as one: who holds what, ids that repeat, copies within a client, features in memory once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.errors import FedquiltError
from fedquilt.graphs.federated import FederatedGraph, federated, with_client_copies, with_owners
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import read_npz, write_npz


def line(nodes: int, start: float = 0.0, **fields: object) -> Graph:
    edges = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
    x = start + np.arange(2 * nodes, dtype=np.float32).reshape(nodes, 2)
    ids = np.array([f"p{number}" for number in range(nodes)])
    return Graph("line", edges, x, np.arange(nodes) % 2, 2, ids=ids, **fields)


def given_split(nodes: int) -> dict[str, np.ndarray]:
    return {part: np.arange(nodes) % 3 == code for code, part in enumerate(("train", "val", "test"))}


def test_no_edge_joins_two_clients_and_ids_may_repeat() -> None:
    found = federated("both", [line(3), line(4, 100, masks=given_split(4))], ["a", "b"])
    assert found.owner.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert [nodes.tolist() for nodes in found.held] == [[0, 1, 2], [3, 4, 5, 6]]
    assert found.edges.T.tolist() == [[0, 1], [1, 2], [3, 4], [4, 5], [5, 6]]
    assert found.ids.tolist()[3] == "p0"
    own = list(found.targets())
    assert own[0].masks is None
    assert own[1].masks["train"].tolist() == [True, False, False, True]
    assert type(found.subgraph(found.held[1])) is Graph
    assert found.subgraph(found.held[1]).x.tolist() == line(4, 100).x.tolist()


def test_a_list_is_emptied_so_that_features_are_not_there_twice() -> None:
    graphs = [line(3), line(4)]
    federated("both", graphs)
    assert graphs == []
    kept = (line(3), line(4))
    assert federated("both", kept).x.tolist() == federated("both", list(kept)).x.tolist()


def test_sparse_features_stay_so_and_dense_ones_join_them() -> None:
    dense = line(3)
    found = federated("both", [dense, replace(line(4, 5), x=sp.csr_matrix(line(4, 5).x))])
    assert found.sparse
    assert found.x.has_sorted_indices
    assert found.x.toarray().tolist() == np.concatenate([dense.x, line(4, 5).x]).tolist()


def test_edges_weigh_one_where_a_client_says_nothing() -> None:
    weighted = replace(line(3), edge_weights=np.array([2, 4], dtype=np.float32))
    assert federated("both", [line(3), weighted]).edge_weights.tolist() == [1, 1, 2, 4]
    assert federated("both", [line(3), line(3)]).edge_weights is None


def test_copies_are_sought_in_each_client_alone() -> None:
    twins = replace(line(3), x=np.array([[1, 1], [2, 2], [1, 1]], dtype=np.float32))
    found = with_client_copies(federated("both", [twins, twins]), "features")
    assert found.copies.tolist() == [0, 1, 0, 2, 3, 2]
    assert with_client_copies(found, "never").copies is None
    assert with_client_copies(found, None) is found


def test_what_is_said_of_names_and_ids() -> None:
    with pytest.raises(FedquiltError, match="Two clients are called 'a'; give every client its own name"):
        federated("both", [line(3), line(3)], ["a", "a"])
    with pytest.raises(FedquiltError, match="has a client's name with no letter"):
        federated("both", [line(3), line(3)], ["a", ""])
    twice = replace(line(3), ids=np.array(["p0", "p0", "p1"]))
    with pytest.raises(FedquiltError, match="Client 'b' of both has the id 'p0' more than once"):
        federated("both", [line(3), twice], ["a", "b"])


def test_clients_of_a_column_are_in_the_order_of_names_and_numbers() -> None:
    found = with_owners(line(4), np.array(["south", "north", "south", "north"]))
    assert (found.owner.tolist(), found.client_names) == ([1, 0, 1, 0], ("north", "south"))
    hospitals = with_owners(line(3), np.array([10, 9, 10]))
    assert (hospitals.owner.tolist(), hospitals.client_names) == ([1, 0, 1], ("9", "10"))
    assert with_owners(line(3), np.array([1, 0, 1])).client_names is None


@pytest.mark.parametrize("names", [None, ["south", "north"]])
def test_an_npz_file_keeps_the_clients_and_their_order(names: list[str] | None, tmp_path: Path) -> None:
    written = federated("both", [line(3), line(4, 9, masks=given_split(4))], names)
    write_npz(written, tmp_path / "g.npz")
    read = read_npz(tmp_path / "g.npz")
    assert isinstance(read, FederatedGraph)
    assert read.owner.tolist() == written.owner.tolist()
    assert read.client_names == (None if names is None else ("south", "north"))
    assert read.ids.tolist() == written.ids.tolist()
    assert [own.masks is None for own in read.targets()] == [True, False]
