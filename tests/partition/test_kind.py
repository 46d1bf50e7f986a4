"""What every kind declares is so, and options are validated by their declaration."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fedquilt.common.registry import module_names
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.kind import KINDS, Drawn, Option, partition_kinds, register_kind
from fedquilt.partition.make import make_partition
from fedquilt.partition.partition import Partition
from support.partitions import loose_communities, random_graph, same, well_formed


def draw(graph: Graph, kind: str, seed: int) -> Partition:
    declared = KINDS.find(kind)
    labels = np.arange(graph.nodes) % 5 if declared.natural else None
    return make_partition(graph, kind, 5 if declared.clients == "given" else None, seed, labels=labels)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return loose_communities()


@pytest.fixture
def temporary() -> Iterator[None]:
    """Kinds that a test registers are removed after it."""
    before = set(KINDS.all())
    yield
    for name in set(KINDS.all()) - before:
        KINDS.remove(name)


def test_kinds_have_one_line_each() -> None:
    assert set(partition_kinds()) == {
        "disjoint",
        "overlapping",
        "louvain",
        "louvain-50",
        "random",
        "imbalanced",
        "natural",
        "label-skew",
        "size-skew",
    }
    assert all(text and "\n" not in text for text in partition_kinds().values())


def test_a_kind_has_the_name_of_its_module() -> None:
    """The help of commands lists the modules, because importing them is slow."""
    modules = module_names("fedquilt.partition.kinds")
    assert [name.replace("_", "-") for name in modules] == list(partition_kinds())


@pytest.mark.parametrize("kind", list(partition_kinds()))
def test_the_seed_decides_where_a_kind_says_so(graph: Graph, kind: str) -> None:
    first, again, other = draw(graph, kind, 1), draw(graph, kind, 1), draw(graph, kind, 2)
    assert same(first.nodes, again.nodes)
    assert first.settings == again.settings
    assert same(first.nodes, other.nodes) != KINDS.find(kind).seeded
    assert well_formed(first)


def test_seeded_kinds() -> None:
    unseeded = {name for name, kind in KINDS.all().items() if not kind.seeded}
    assert unseeded == {"disjoint", "natural"}


@pytest.mark.parametrize("kind", list(partition_kinds()))
def test_clients_of_one_part_are_more_alike_than_others(graph: Graph, kind: str) -> None:
    shared = KINDS.find(kind).clients_per_part
    assert (shared > 1) == (kind == "overlapping")
    if shared > 1:
        nodes = make_partition(graph, kind, 2 * shared, 0).nodes
        for one in range(2 * shared):
            alike = [np.intersect1d(nodes[one], nodes[other]).size > 0 for other in range(2 * shared)]
            assert alike == [one // shared == other // shared for other in range(2 * shared)]


def test_a_new_kind_needs_only_the_decorator(graph: Graph) -> None:
    @register_kind("odd-even", "odd nodes and even nodes", clients="found")
    def odd_even(graph: Graph, clients: int | None, seed: int) -> Drawn:
        return [np.arange(start, graph.nodes, 2) for start in (0, 1)], {}

    assert partition_kinds()["odd-even"] == "odd nodes and even nodes"
    assert make_partition(graph, "odd-even").clients == 2
    KINDS.remove("odd-even")
    assert "odd-even" not in partition_kinds()


@pytest.mark.usefixtures("temporary")
def test_a_kind_gets_its_options_validated() -> None:
    @register_kind(
        "first-nodes",
        "the first nodes, and the others",
        options=[Option("first", int, "how many are first", least=2), Option("weights", list, "some weights")],
        clients="found",
    )
    def first_nodes(
        graph: Graph, clients: int | None, seed: int, first: int = 3, weights: list[int] | None = None
    ) -> Drawn:
        return [np.arange(first), np.arange(first, graph.nodes)], {"first": first, "weights": weights}

    graph = random_graph(10)
    assert make_partition(graph, "first-nodes").settings == {"first": 3, "weights": None}
    made = make_partition(graph, "first-nodes", first=np.int64(4), weights=(1, 2))
    assert made.settings == {"first": 4, "weights": [1, 2]}
    assert [type(value) for value in made.settings.values()] == [int, list]
    for wrong in ({"first": 1}, {"first": 2.5}, {"first": "4"}):
        with pytest.raises(FedquiltError, match=r"takes a first of 2 or more, not .*; give how many are first"):
            make_partition(graph, "first-nodes", **wrong)
    for wrong in ({"weights": 3}, {"weights": []}, {"weights": [1, 0]}, {"weights": [0.5]}):
        with pytest.raises(FedquiltError, match="takes weights, whole numbers of 1 or more, not "):
            make_partition(graph, "first-nodes", **wrong)
    with pytest.raises(FedquiltError, match="'first-nodes' takes no 'last'; leave it out"):
        make_partition(graph, "first-nodes", last=1)


def test_two_kinds_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match="'disjoint' is registered twice"):
        register_kind("disjoint", "again")(lambda graph, clients, seed: ([], {}))
