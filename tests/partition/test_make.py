from __future__ import annotations

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition import fingerprint
from fedquilt.partition.make import make_partition
from support.partitions import covers_once, make_graph, random_graph


@pytest.fixture
def graph() -> Graph:
    return random_graph(60)


def test_partition_says_where_it_comes_from(graph: Graph) -> None:
    partition = make_partition(graph, "disjoint", 4, 7)
    assert (partition.kind, partition.seed, partition.graph, partition.total) == ("disjoint", 7, "toy", 60)
    assert partition.fingerprint == fingerprint(graph)
    assert partition.settings == {"parts": 4}
    assert partition.clients == 4
    assert np.array_equal(partition.sizes, [len(held) for held in partition.nodes])


def test_unknown_kind_names_the_nearest(graph: Graph) -> None:
    with pytest.raises(FedquiltError, match="no partition 'disjont'; did you mean 'disjoint'"):
        make_partition(graph, "disjont", 4)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (None, "'disjoint' needs the number of clients"),
        (0, "at least one client, not 0"),
        (-3, "at least one client, not -3"),
        (61, "60 nodes, too few for 61 clients"),
        (2.5, "whole number, not 2.5"),
        ("4", "whole number, not '4'"),
    ],
)
def test_bad_number_of_clients(graph: Graph, clients: object, message: str) -> None:
    with pytest.raises(FedquiltError, match=message):
        make_partition(graph, "disjoint", clients)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "options"),
    [("disjoint", {"sizes": [1]}), ("random", {"minimum": 3}), ("louvain", {"labels": np.zeros(60, int)})],
)
def test_an_option_of_another_kind_is_an_error(graph: Graph, kind: str, options: dict[str, object]) -> None:
    with pytest.raises(FedquiltError, match=f"kind '{kind}' takes no '{next(iter(options))}'"):
        make_partition(graph, kind, 4, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["louvain-50", "imbalanced", "disjoint"])
def test_a_graph_without_nodes_is_an_error(kind: str) -> None:
    with pytest.raises(FedquiltError, match="no nodes"):
        make_partition(make_graph(np.zeros((2, 0), np.int64), 0), kind)


def test_real_cora(cora: Graph) -> None:
    for kind in ("disjoint", "louvain", "random"):
        partition = make_partition(cora, kind, 10, 0)
        assert partition.clients == 10
        assert covers_once(partition)
    sizes = make_partition(cora, "disjoint", 10).sizes
    assert sizes.max() < 1.05 * cora.nodes / 10
    large = make_partition(cora, "louvain-50", seed=0)
    assert covers_once(large)
    assert large.sizes.min() >= 50
