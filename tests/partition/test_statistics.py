from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.make import make_partition
from fedquilt.partition.statistics import (
    label_correlation,
    label_distances,
    label_distributions,
    local_clustering,
    statistics,
)
from support.partitions import cliques, graphs, largest_component, random_graph


def network(graph: Graph) -> nx.Graph:
    made = nx.Graph()
    made.add_nodes_from(range(graph.nodes))
    made.add_edges_from(graph.edges.T.tolist())
    return made


@given(graphs())
def test_clustering_is_networkxs(graph: Graph) -> None:
    expected = nx.clustering(network(graph))
    found = local_clustering(graph.edges, graph.nodes)
    np.testing.assert_allclose(found, [expected[node] for node in range(graph.nodes)])


def test_clustering_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(80, 0.3)
    whole = local_clustering(graph.edges, graph.nodes)
    # The package's attribute of that name is the function.
    module = sys.modules["fedquilt.partition.statistics"]
    monkeypatch.setattr(module, "_BLOCK", 50)
    monkeypatch.setattr(module, "_DISTANCES", 30)
    np.testing.assert_array_equal(local_clustering(graph.edges, graph.nodes), whole)
    partition = make_partition(graph, "random", 12, 0)
    in_blocks = label_distances(graph, partition)
    monkeypatch.undo()
    distances = label_distances(graph, partition)
    np.testing.assert_array_equal(distances, in_blocks)
    np.testing.assert_array_equal(distances, distances.T)
    assert not distances.diagonal().any()


@given(graphs(least=10), st.sampled_from(["disjoint", "overlapping", "random"]), st.integers(0, 20))
def test_figures_are_those_of_the_subgraphs(graph: Graph, kind: str, seed: int) -> None:
    partition = make_partition(graph, kind, 5, seed)
    found = statistics(graph, partition)
    subgraphs = [graph.subgraph(held) for held in partition.nodes]
    assert found.clients == 5
    assert found.nodes.tolist() == [part.nodes for part in subgraphs]
    assert found.edges.tolist() == [part.edges.shape[1] for part in subgraphs]
    np.testing.assert_allclose(found.clustering, [nx.average_clustering(network(part)) for part in subgraphs])
    assert found.graph_clustering == pytest.approx(nx.average_clustering(network(graph)))
    assert found.mean_nodes == pytest.approx(np.mean(found.nodes))
    assert found.unheld == graph.nodes - len(set(partition.flat()[0].tolist()))

    held = [set(nodes.tolist()) for nodes in partition.nodes]
    lost = [(u, v) for u, v in graph.edges.T.tolist() if not any(u in own and v in own for own in held)]
    expected = np.zeros((5, 5), int)
    for (u, v), first, second in product(lost, range(5), range(5)):
        expected[first, second] += (u in held[first] and v in held[second]) or (v in held[first] and u in held[second])
    assert found.missing == len(lost)
    assert found.missing_fraction == (len(lost) / graph.edges.shape[1] if lost else 0)
    np.testing.assert_array_equal(found.missing_between.toarray(), expected)
    if kind != "overlapping":
        assert found.missing_between.sum() == 2 * found.missing
        assert found.edges.sum() + found.missing == found.graph_edges


@given(graphs(least=5), st.integers(0, 20))
def test_label_distances_are_scipys(graph: Graph, seed: int) -> None:
    partition = make_partition(graph, "random", 5, seed)
    shares = label_distributions(graph, partition)
    assert shares.shape == (5, graph.classes)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    expected = [[jensenshannon(p, q) for q in shares] for p in shares]
    np.testing.assert_allclose(label_distances(graph, partition), np.nan_to_num(expected), atol=1e-6)


def test_label_distributions_leave_unlabelled_nodes_out() -> None:
    graph = replace(random_graph(6), y=np.array([0, 2, -1, 1, -1, -1]), classes=4)
    partition = make_partition(graph, "natural", labels=np.array([0, 0, 0, 1, 1, 2]))
    np.testing.assert_array_equal(label_distributions(graph, partition), [[0.5, 0, 0.5, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    distances = label_distances(graph, partition)
    assert np.isnan(distances[2]).all()
    assert np.isnan(distances[:, 2]).all()
    assert distances[0, 1] == pytest.approx(np.sqrt(np.log(2)))
    assert statistics(graph, partition).heterogeneity == pytest.approx(np.sqrt(np.log(2)) / 2)
    unlabelled = replace(graph, y=np.full(6, -1))
    assert np.isnan(statistics(unlabelled, partition).heterogeneity)


def test_whole_graph_as_one_client() -> None:
    graph = cliques(4, 3)
    found = statistics(graph, make_partition(graph, "disjoint", 1))
    assert (found.missing, found.missing_fraction, found.heterogeneity) == (0, 0, 0)
    assert found.mean_clustering == found.graph_clustering == 1


def test_graph_without_edges() -> None:
    graph = random_graph(6, 0)
    found = statistics(graph, make_partition(graph, "random", 2, 0))
    assert (found.missing, found.missing_fraction) == (0, 0)
    assert (found.mean_edges, found.mean_clustering) == (0, 0)


def test_rows_are_ready_to_print() -> None:
    graph = cliques(5, 5)
    found = statistics(graph, make_partition(graph, "natural", labels=np.arange(10) // 5))
    assert ("Nodes", "10", "5.0") in found.rows()
    assert ("Clustering coefficient", "1.000", "1.000") in found.rows()
    assert ("Edges held by no client", "0 (0.0%)", "") in found.rows()


def test_partition_of_another_graph() -> None:
    with pytest.raises(FedquiltError, match="made for graph 'toy'"):
        statistics(random_graph(20, seed=1), make_partition(random_graph(20), "random", 2, 0))


# FED-PUB's Table 4: nodes, edges (both directions), clustering coefficient, heterogeneity. Tolerances
# are what another METIS cut of the same graph changes: which cut the paper describes it does not say.
TABLE_4 = {
    ("cora", "disjoint", 5): (497, 1866, 0.250, 0.590),
    ("cora", "disjoint", 10): (249, 891, 0.259, 0.606),
    ("cora", "disjoint", 20): (124, 422, 0.263, 0.665),
    ("cora", "overlapping", 10): (621, 1249, 0.133, 0.297),
    ("cora", "overlapping", 30): (207, 379, 0.129, 0.567),
    ("cora", "overlapping", 50): (124, 215, 0.125, 0.613),
    ("citeseer", "disjoint", 10): (212, 675, 0.178, 0.541),
    ("citeseer", "overlapping", 10): (530, 889, 0.088, 0.278),
}


@pytest.mark.parametrize(("name", "kind", "clients"), TABLE_4)
def test_table_4(data_folder: Path, name: str, kind: str, clients: int) -> None:
    graph = largest_component(data_folder / f"{name}.npz")
    # Overlapping clients are random halves: a single draw says little about edges and triangles.
    found = [statistics(graph, make_partition(graph, kind, clients, seed)) for seed in range(5)]
    nodes, edges, clustering, heterogeneity = TABLE_4[name, kind, clients]
    assert np.mean([each.mean_nodes for each in found]) == pytest.approx(nodes, abs=0.75)
    assert 2 * np.mean([each.mean_edges for each in found]) == pytest.approx(edges, rel=0.05)
    assert np.mean([each.mean_clustering for each in found]) == pytest.approx(clustering, abs=0.015)
    assert np.mean([each.heterogeneity for each in found]) == pytest.approx(heterogeneity, abs=0.06)


def test_table_4_original_graphs(cora: Graph) -> None:
    found = statistics(cora, make_partition(cora, "disjoint", 10))
    assert (found.graph_nodes, 2 * found.graph_edges) == (2485, 10138)
    assert round(found.graph_clustering, 3) == 0.238


def test_label_correlation_is_pearsons_over_pairs() -> None:
    rng = np.random.default_rng(0)
    similarity, distances = rng.random((2, 4, 4)), rng.random((4, 4))
    distances[3] = distances[:, 3] = np.nan  # a client without labels
    pairs = [(0, 1), (0, 2), (1, 2)]
    mine = [(similarity[0, a, b] + similarity[1, a, b]) / 2 for a, b in pairs]
    expected = np.corrcoef(mine, [1 - distances[a, b] for a, b in pairs])[0, 1]
    assert label_correlation(similarity, distances) == pytest.approx(expected)
    assert label_correlation(np.ones((4, 4)), distances) is None
    rounded = np.full((4, 4), 0.05) + 1e-17 * rng.standard_normal((4, 4)) + np.eye(4) * 1e-16
    rounded[0, 1] += 7e-18
    assert label_correlation(rounded, distances) is None
    assert label_correlation(np.float32(0.05) + 2e-9 * rng.random((4, 4)), distances) is None
    assert label_correlation(similarity[:, :1, :1], distances[:1, :1]) is None
