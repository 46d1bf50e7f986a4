"""The partition of a run: from a kind, or from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.partition.make import make_partition
from fedquilt.partition.source import clients_per_part, find_source
from fedquilt.partition.storage import save
from support.partitions import random_graph, same


def test_a_kind_cuts_anew_for_each_seed() -> None:
    graph = random_graph(60)
    source = find_source("random", "toy")
    assert (source.name, source.kind, source.finds_clients, source.min_train) == ("random", "random", False, None)
    for seed in (0, 1):
        expected = make_partition(graph, "random", 4, seed)
        assert same(source.partition(graph, 4, seed).nodes, expected.nodes)
    with pytest.raises(FedquiltError, match="'random' takes no 'sizes'"):
        source.partition(graph, 4, 0, sizes=[1, 2])


def test_natural_clients_are_the_datasets() -> None:
    source = find_source("natural", "communities-3")
    assert source.finds_clients
    assert source.min_train == 1
    graph, _ = load_graph("communities-3")
    assert np.array_equal(source.partition(graph, None, 0).sizes, [30] * 20)
    with pytest.raises(FedquiltError, match="mine has no natural clients; choose another partition, such as disjoint"):
        find_source("natural", "mine").partition(graph, None, 0)


def test_a_saved_partition_is_the_same_for_every_seed(tmp_path: Path) -> None:
    graph = random_graph(60)
    saved = make_partition(graph, "random", 4, 7)
    save(saved, tmp_path / "cut.npz")
    source = find_source(str(tmp_path / "cut.npz"), "toy")
    assert (source.name, source.kind) == (str((tmp_path / "cut.npz").resolve()), "random")
    assert source.finds_clients
    assert source.min_train is None
    for seed in (0, 1):
        assert same(source.partition(graph, 99, seed).nodes, saved.nodes)
    with pytest.raises(FedquiltError, match="made for graph 'toy' with 60 nodes"):
        source.partition(random_graph(61), None, 0)


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="no partition 'randm'; did you mean 'random'"):
        find_source("randm", "toy")
    with pytest.raises(FedquiltError, match="There is no partition file"):
        find_source(str(tmp_path / "nothing.npz"), "toy")


def test_clients_per_part() -> None:
    assert clients_per_part("overlapping") == 5
    assert clients_per_part("disjoint") == clients_per_part("cut.npz") == 1
