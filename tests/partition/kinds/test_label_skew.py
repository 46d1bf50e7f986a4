"""The kind `label-skew`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.make import make_partition
from fedquilt.partition.statistics import label_counts, label_distances
from support.partitions import covers_once, same


def labelled(nodes: int = 600, classes: int = 5, unlabelled: float = 0.1) -> Graph:
    rng = np.random.default_rng(0)
    y = rng.choice(classes, nodes, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
    y[rng.random(nodes) < unlabelled] = -1
    edges = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
    return Graph("g", edges, np.ones((nodes, 1), np.float32), y, classes)


@given(st.integers(1, 30), st.integers(0, 99), st.sampled_from([1e-3, 0.1, 1.0, 100.0]))
def test_all_nodes_are_dealt_and_sizes_are_equal(clients: int, seed: int, alpha: float) -> None:
    graph = labelled(120)
    partition = make_partition(graph, "label-skew", clients, seed, alpha=alpha)
    assert covers_once(partition)
    assert np.ptp(partition.sizes) <= 1
    known = label_counts(graph, partition).sum(1)
    assert np.ptp(known) <= 1
    assert partition.settings == {"alpha": alpha}


def test_the_skew_grows_as_alpha_falls() -> None:
    graph, above = labelled(), np.triu_indices(6, 1)
    found = [
        np.mean(
            [
                label_distances(graph, make_partition(graph, "label-skew", 6, seed, alpha=alpha))[above]
                for seed in range(6)
            ]
        )
        for alpha in (0.05, 1.0, 10.0, 1000.0)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.6 > 0.2 > found[-1]
    few = label_counts(graph, make_partition(graph, "label-skew", 6, 0, alpha=1e-3))
    assert (few > 0).sum(1).max() <= 3  # a class or two, and what was left


def test_mixes_are_those_of_the_distribution() -> None:
    """Over seeds and clients, shares of classes have the mean p and about the variance p (1 - p) / (alpha + 1)."""
    graph, alpha = labelled(2000, 3, 0.0), 2.0
    p = np.bincount(graph.y) / graph.nodes
    shares = []
    for seed in range(300):
        counts = label_counts(graph, make_partition(graph, "label-skew", 20, seed, alpha=alpha))
        shares.append(counts / counts.sum(1, keepdims=True))
    shares = np.concatenate(shares)
    np.testing.assert_allclose(shares.mean(0), p, atol=1e-9)  # all nodes are dealt
    np.testing.assert_allclose(shares.var(0), p * (1 - p) / (alpha + 1), rtol=0.2)


def test_a_seed_gives_one_partition_and_alpha_is_half_by_default() -> None:
    graph = labelled()
    one = make_partition(graph, "label-skew", 5, 3)
    assert same(one.nodes, make_partition(graph, "label-skew", 5, 3, alpha=0.5).nodes)
    assert not same(one.nodes, make_partition(graph, "label-skew", 5, 4).nodes)


@pytest.mark.parametrize("alpha", [0, -1, float("inf"), True, "much"])
def test_an_impossible_alpha_is_refused(alpha: object) -> None:
    with pytest.raises(FedquiltError, match="takes alpha, a number above 0"):
        make_partition(labelled(), "label-skew", 5, alpha=alpha)


def test_a_graph_without_classes_is_refused() -> None:
    numbers = np.linspace(0.5, 9, 20)
    graph = Graph.from_arrays("prices", [[0], [1]], np.ones((20, 1)), numbers)
    with pytest.raises(FedquiltError, match="prices has no classes that clients could have unequal shares of"):
        make_partition(graph, "label-skew", 2)
