from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.louvain import communities
from fedquilt.partition.make import make_partition
from fedquilt.partition.metis import cut
from fedquilt.partition.partition import Partition
from support.partitions import cliques, graphs, random_graph, same

SEEDED = ["overlapping", "louvain", "louvain-50", "random", "imbalanced"]


def covers_once(partition: Partition) -> bool:
    return np.array_equal(np.sort(partition.flat()[0]), np.arange(partition.total))


def well_formed(partition: Partition) -> bool:
    return all(held.size and held.dtype == np.int64 and (np.diff(held) > 0).all() for held in partition.nodes)


def draw(graph: Graph, kind: str, seed: int) -> Partition:
    return make_partition(graph, kind, None if kind in ("louvain-50", "imbalanced") else 5, seed)


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Eight loosely tied communities of 60, and ten of 10."""
    base = cliques(*[60] * 8, *[10] * 10)
    rng = np.random.default_rng(0)
    ties = np.sort(rng.integers(base.nodes, size=(2, 60)), axis=0)
    edges = np.unique(np.concatenate([base.edges, ties[:, ties[0] < ties[1]]], axis=1), axis=1)
    return Graph("communities", edges, base.x, base.y, base.classes)


@pytest.mark.parametrize("kind", SEEDED)
def test_seed_decides(graph: Graph, kind: str) -> None:
    first, again, other = draw(graph, kind, 1), draw(graph, kind, 1), draw(graph, kind, 2)
    assert same(first.nodes, again.nodes)
    assert first.settings == again.settings
    assert not same(first.nodes, other.nodes)
    assert well_formed(first)


def test_disjoint_is_the_same_for_all_seeds(graph: Graph) -> None:
    assert same(draw(graph, "disjoint", 1).nodes, draw(graph, "disjoint", 2).nodes)


@given(graphs(), st.sampled_from(["disjoint", "random"]), st.integers(0, 99), st.data())
def test_disjoint_kinds_hold_each_node_once(graph: Graph, kind: str, seed: int, data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, graph.nodes))
    partition = make_partition(graph, kind, clients, seed)
    assert partition.clients == clients
    assert covers_once(partition)
    assert well_formed(partition)
    if kind == "random":
        assert np.ptp(partition.sizes) <= 1


@given(graphs(), st.integers(0, 99), st.data())
def test_louvain_merges_whole_communities(graph: Graph, seed: int, data: st.DataObject) -> None:
    found = communities(graph, seed)
    clients = data.draw(st.integers(1, int(found.max()) + 1))
    partition = make_partition(graph, "louvain", clients, seed)
    assert partition.clients == clients
    assert covers_once(partition)
    assert well_formed(partition)
    assert sum(np.unique(found[held]).size for held in partition.nodes) == found.max() + 1


def test_louvain_with_too_few_communities() -> None:
    with pytest.raises(FedquiltError, match="finds 3 communities in graph 'cliques', too few for 4 clients"):
        make_partition(cliques(10, 10, 10), "louvain", 4)


def test_louvain_50_keeps_the_large_ones() -> None:
    graph = cliques(60, 50, 49, 10, 5)
    partition = make_partition(graph, "louvain-50", seed=3)
    assert partition.clients == 2
    assert covers_once(partition)
    assert partition.settings == {"communities": 5, "minimum": 50}
    first, second = partition.nodes
    assert {60, 50} == {np.sum(held < 110) for held in (first, second)}
    assert make_partition(graph, "louvain-50", 7, 3).clients == 2
    assert make_partition(graph, "louvain-50", seed=3, minimum=10).clients == 4


def test_louvain_50_errors() -> None:
    with pytest.raises(FedquiltError, match=r"has 50 nodes or more \(the largest has 20\)"):
        make_partition(cliques(20, 10), "louvain-50")
    with pytest.raises(FedquiltError, match="minimum of 1 or more"):
        make_partition(cliques(20, 10), "louvain-50", minimum=0)


@given(graphs(least=5), st.integers(0, 99), st.data())
def test_overlapping_takes_halves_of_parts(graph: Graph, seed: int, data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, graph.nodes // 5))
    partition = make_partition(graph, "overlapping", 5 * parts, seed)
    labels = cut(graph, parts)
    assert partition.clients == 5 * parts
    assert well_formed(partition)
    for client, held in enumerate(partition.nodes):
        assert (labels[held] == client // 5).all()
        assert held.size == max(1, (labels == client // 5).sum() // 2)


def test_overlapping_halves_are_independent() -> None:
    partition = make_partition(random_graph(400, 0.02), "overlapping", 10, 0)
    shared = [np.intersect1d(partition.nodes[0], partition.nodes[other]).size for other in range(1, 5)]
    assert all(30 < count < 70 for count in shared)
    assert np.intersect1d(partition.nodes[0], partition.nodes[5]).size == 0


@pytest.mark.parametrize("clients", [1, 7, 12])
def test_overlapping_needs_a_multiple_of_five(clients: int) -> None:
    with pytest.raises(FedquiltError, match=f"{clients} clients do not work; use a multiple of 5"):
        make_partition(random_graph(60), "overlapping", clients)


@given(graphs(least=12), st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 99))
def test_imbalanced_merges_whole_parts(graph: Graph, sizes: list[int], seed: int) -> None:
    partition = make_partition(graph, "imbalanced", seed=seed, sizes=sizes)
    labels = cut(graph, sum(sizes))
    assert covers_once(partition)
    assert [np.unique(labels[held]).size for held in partition.nodes] == sizes


def test_imbalanced_by_default_is_ten_clients_of_twenty_parts(graph: Graph) -> None:
    partition = make_partition(graph, "imbalanced")
    labels = cut(graph, 20)
    found = [np.unique(labels[held]).size for held in partition.nodes]
    assert found == [5, 3, 2, 2, 2, 2, 1, 1, 1, 1] == partition.settings["sizes"]
    assert same(partition.nodes, make_partition(graph, "imbalanced", 10).nodes)
    assert make_partition(graph, "imbalanced", sizes=[5, 3, 2, 2, 2, 1, 1, 1, 1, 1, 1]).clients == 11


@pytest.mark.parametrize(
    ("clients", "sizes", "message"),
    [
        (7, None, "for 7 clients give 7 sizes"),
        (3, [1, 2], "2 sizes were given for 3 clients"),
        (None, [], "1 or more"),
        (None, [2, 0], "1 or more"),
        (None, [1.5], "whole numbers"),
        (None, [50, 11], "cannot be cut into 61 parts"),
    ],
)
def test_imbalanced_errors(clients: int | None, sizes: list[int] | None, message: str) -> None:
    with pytest.raises(FedquiltError, match=message):
        make_partition(random_graph(60), "imbalanced", clients, sizes=sizes)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_natural_follows_the_labels(owners: list[int]) -> None:
    labels = np.array(owners)
    partition = make_partition(random_graph(len(owners)), "natural", labels=labels)
    assert covers_once(partition)
    assert [labels[held].tolist() for held in partition.nodes] == [
        [name] * owners.count(name) for name in sorted(set(owners))
    ]


@pytest.mark.parametrize(
    ("clients", "labels", "message"),
    [
        (None, None, "needs 'labels'"),
        (None, np.zeros(5, int), "6 whole numbers"),
        (None, np.zeros(6), "not float64"),
        (None, np.array([0, 0, -1, 1, 1, 1]), "0 or more"),
        (3, np.array([0, 0, 1, 1, 1, 1]), "name 2 clients, not 3"),
    ],
)
def test_natural_errors(clients: int | None, labels: np.ndarray | None, message: str) -> None:
    with pytest.raises(FedquiltError, match=message):
        make_partition(random_graph(6), "natural", clients, labels=labels)


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
