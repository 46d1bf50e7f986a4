"""Labels that are numbers: when they are, how a graph stores them, and what stays with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from fedquilt.cohort.client import clients_of
from fedquilt.errors import FedquiltError
from fedquilt.graphs.align import with_classes
from fedquilt.graphs.check import describe_graph
from fedquilt.graphs.federated import federated
from fedquilt.graphs.fingerprint import fingerprints
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.label_numbers import as_numbers, joined_numbers, numbers_in_words, numeric_labels, presence
from fedquilt.graphs.npz import read_npz, write_npz
from fedquilt.graphs.union import disjoint_union
from fedquilt.partition.make import make_partition

NUMBERS = np.array([1.5, np.nan, -2.0, 7.25])


def graph_of(y: Any, **more: Any) -> Graph:
    y = np.asarray(y)
    x = np.arange(2 * len(y), dtype=np.float32).reshape(-1, 2)
    return Graph.from_arrays("g", [[0, 1], [1, len(y) - 1]], x, y, **more)


@pytest.mark.parametrize(
    ("y", "numbers"),
    [
        ([0.0, 1.0, np.nan], False),
        ([-1.0, 3.0], False),
        ([0, 1, 2], False),
        ([0.0, 0.5], True),
        ([-2.0, 1.0], True),
        ([250_000.0, 3.0], True),
    ],
)
def test_labels_are_numbers_where_they_cannot_be_classes(y: list[float], numbers: bool) -> None:
    assert (as_numbers(np.array(y)) is not None) == numbers
    assert (graph_of(y).numbers is not None) == numbers


def test_y_says_which_nodes_have_a_number() -> None:
    graph = graph_of(NUMBERS)
    assert presence(NUMBERS).tolist() == [0, -1, 0, 0] == graph.y.tolist()
    assert graph.classes == 1
    np.testing.assert_array_equal(numeric_labels(graph.y, graph.numbers), NUMBERS)
    np.testing.assert_array_equal(numeric_labels(np.array([2, -1]), None), [2.0, np.nan])
    # Numbers that could be classes stay numbers where that is said.
    np.testing.assert_array_equal(graph_of([-1, -1, -1], numbers=[1.0, -1.0, np.nan]).numbers, [1.0, -1.0, np.nan])


def test_numbers_stay_with_their_nodes(tmp_path: Path) -> None:
    graph = graph_of(NUMBERS)
    np.testing.assert_array_equal(graph.subgraph(np.array([2, 3])).numbers, [-2.0, 7.25])
    parts = make_partition(graph, "random", 2, seed=0)
    own = [client.graph.numbers for client in clients_of(graph, parts, np.zeros(4, np.int8))]
    np.testing.assert_array_equal(np.concatenate(own), NUMBERS[np.concatenate(parts.nodes)])
    np.testing.assert_array_equal(disjoint_union("two", [graph, graph]).numbers, [*NUMBERS, *NUMBERS])
    write_npz(graph, tmp_path / "g.npz")
    again = read_npz(tmp_path / "g.npz")
    np.testing.assert_array_equal(again.numbers, NUMBERS)
    assert fingerprints(again) == fingerprints(graph)
    other = replace(graph, numbers=graph.numbers + 1)
    assert fingerprints(other)["labels"] != fingerprints(graph)["labels"]
    data = graph.to_data()
    assert data.y.dtype == torch.float32
    np.testing.assert_array_equal(Graph.from_data(data).numbers, NUMBERS)


def test_data_with_one_column_of_floats_has_numbers() -> None:
    data = Data(
        x=torch.ones(3, 2), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([[0.25], [1.0], [float("nan")]])
    )
    np.testing.assert_array_equal(Graph.from_data(data).numbers, [0.25, 1.0, np.nan])


def test_clients_of_which_one_has_fractions_all_have_numbers() -> None:
    joined = federated("both", [graph_of([3, -1, 5]), graph_of(NUMBERS)])
    np.testing.assert_array_equal(joined.numbers, [3.0, np.nan, 5.0, *NUMBERS])
    assert joined.y.tolist() == [0, -1, 0, 0, -1, 0, 0]
    assert joined.classes == 1
    assert joined_numbers([(np.array([1]), None)]) is None
    named = graph_of([0, 1, 0], class_names=("ill", "well"))
    with pytest.raises(
        FedquiltError, match="Client 0 has classes as labels, and client 1 has numbers; give all clients"
    ):
        federated("both", [named, graph_of(NUMBERS)])
    with pytest.raises(FedquiltError, match="g has numbers as labels and no classes to name"):
        with_classes(graph_of(NUMBERS), ["a", "b"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"numbers": np.zeros(3)}, "numbers of shape 3 and type float64 for 4 nodes"),
        ({"numbers": np.array([1.0, np.nan, np.inf, 1.0])}, "a label that is infinite or beyond"),
        ({"numbers": np.ones(4)}, "both classes and numbers"),
    ],
)
def test_faults(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FedquiltError, match=message):
        replace(graph_of(NUMBERS), **changes).validate()


def test_a_graph_without_any_label_is_refused() -> None:
    with pytest.raises(FedquiltError, match="no labelled node"):
        graph_of([0, 0], numbers=[np.nan, np.nan])


def test_numbers_in_words_and_what_a_check_says() -> None:
    assert numbers_in_words(NUMBERS) == "numbers from -2 to 7.25, mean 2.25"
    assert numbers_in_words(np.array([np.nan])) == "numbers, none known"
    report = describe_graph(graph_of(NUMBERS))
    rows = dict(report.rows())
    assert rows["labels"] == "numbers from -2 to 7.25, mean 2.25"
    assert rows["unlabelled nodes"] == "1"
    assert "classes" not in rows
    assert "edge homophily" not in rows
    assert "--task node-regression learns them" in next(f.done for f in report.findings if f.topic == "labels")
