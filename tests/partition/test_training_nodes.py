from __future__ import annotations

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.partition.make import make_partition
from fedquilt.partition.partition import Partition
from fedquilt.partition.training_nodes import (
    MAX_SHORT_CLIENTS,
    check_training_nodes,
    short_clients,
    training_nodes,
    worth_redrawing,
)
from support.partitions import random_graph


@pytest.fixture
def partition() -> Partition:
    return make_partition(random_graph(6), "natural", labels=np.array([0, 0, 0, 1, 1, 2]))


def test_counts(partition: Partition) -> None:
    split = np.array([0, 0, 1, 0, 2, -1], dtype=np.int8)
    assert np.array_equal(training_nodes(partition, split), [2, 1, 0])


def test_who_lacks_training_nodes(partition: Partition) -> None:
    split = np.array([0, 0, 1, 0, 2, 0], dtype=np.int8)
    check_training_nodes(partition, split)
    assert short_clients(partition, split).tolist() == []
    assert short_clients(partition, split, 1).tolist() == []
    assert short_clients(partition, split, 2).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("split", "minimum", "message"),
    [
        (
            [0, 1, 1, 2, 1, -1],
            1,
            "Client 1 of 3 has no training node, and 1 more has too few; draw again with --min-train 1, use fewer "
            "clients, or a larger training share.",
        ),
        (
            [0, 0, 0, 0, 1, 0],
            2,
            "Client 1 of 3 has 1 training node where 2 are wanted, and 1 more has too few; draw again with "
            "--min-train 2, use fewer clients, or a larger training share.",
        ),
        (
            [0, 0, 1, 0, 0, 0],
            3,
            "Client 0 of 3 has 2 training nodes where 3 are wanted, and 2 more have too few; draw again with "
            "--min-train 3, use fewer clients, or a larger training share.",
        ),
        (
            [0, 0, 0, 1, 2, 0],
            1,
            "Client 1 of 3 has no training node; draw again with --min-train 1, use fewer clients, or a larger "
            "training share.",
        ),
    ],
)
def test_the_first_client_that_lacks_is_named(
    partition: Partition, split: list[int], minimum: int, message: str
) -> None:
    with pytest.raises(FedquiltError) as caught:
        check_training_nodes(partition, np.array(split, dtype=np.int8), minimum)
    assert str(caught.value) == message


def test_drawing_again_is_not_advised_where_it_cannot_help(partition: Partition) -> None:
    split = np.array([0, 0, 0, 1, 2, 0], dtype=np.int8)
    with pytest.raises(FedquiltError, match=r"has no training node; use fewer clients, or a larger training share\.$"):
        check_training_nodes(partition, split, redraw=False)
    many = make_partition(random_graph(3 * MAX_SHORT_CLIENTS), "random", MAX_SHORT_CLIENTS + 1)
    with pytest.raises(FedquiltError, match=rf"and {MAX_SHORT_CLIENTS} more have too few; use fewer clients"):
        check_training_nodes(many, np.ones(3 * MAX_SHORT_CLIENTS, np.int8))


def test_a_node_held_twice_counts_for_both() -> None:
    partition = make_partition(random_graph(20), "overlapping", 5, 0)
    assert np.array_equal(training_nodes(partition, np.zeros(20, np.int8)), [10] * 5)


def test_split_of_another_graph(partition: Partition) -> None:
    with pytest.raises(FedquiltError, match=r"shape \(5,\).*6 nodes"):
        short_clients(partition, np.zeros(5, np.int8))


@pytest.mark.parametrize(
    ("short", "worth"), [(0, False), (1, True), (MAX_SHORT_CLIENTS, True), (MAX_SHORT_CLIENTS + 1, False)]
)
def test_another_draw_helps_only_where_few_clients_are_short(short: int, worth: bool) -> None:
    clients = MAX_SHORT_CLIENTS + 5
    partition = make_partition(random_graph(clients), "natural", labels=np.arange(clients))
    split = np.where(np.arange(clients) < short, 1, 0).astype(np.int8)
    assert worth_redrawing(partition, split, 1) == worth
