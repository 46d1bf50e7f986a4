from __future__ import annotations

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.partition import Partition, enough, make_partition, training_nodes_check
from fedquilt.partition.clients import training_nodes

from .helpers import random_graph


@pytest.fixture
def partition() -> Partition:
    return make_partition(random_graph(6), "natural", labels=np.array([0, 0, 0, 1, 1, 2]))


def test_counts(partition: Partition) -> None:
    split = np.array([0, 0, 1, 0, 2, -1], dtype=np.int8)
    assert np.array_equal(training_nodes(partition, split), [2, 1, 0])


def test_enough(partition: Partition) -> None:
    split = np.array([0, 0, 1, 0, 2, 0], dtype=np.int8)
    training_nodes_check(partition, split)
    assert enough(partition, split)
    assert enough(partition, split, 1)
    assert not enough(partition, split, 2)


@pytest.mark.parametrize(
    ("split", "minimum", "message"),
    [
        (
            [0, 1, 1, 2, 1, -1],
            1,
            "Client 1 of 3 has no training node; draw again with --min-train 1, use fewer clients, or a "
            "larger training share.",
        ),
        (
            [0, 0, 0, 0, 1, 0],
            2,
            "Client 1 of 3 has 1 training node where 2 are wanted; draw again with --min-train 2, use fewer "
            "clients, or a larger training share.",
        ),
        (
            [0, 0, 1, 0, 0, 0],
            3,
            "Client 0 of 3 has 2 training nodes where 3 are wanted; draw again with --min-train 3, use fewer "
            "clients, or a larger training share.",
        ),
    ],
)
def test_the_first_client_that_lacks_is_named(
    partition: Partition, split: list[int], minimum: int, message: str
) -> None:
    with pytest.raises(FedquiltError) as caught:
        training_nodes_check(partition, np.array(split, dtype=np.int8), minimum)
    assert str(caught.value) == message


def test_a_node_held_twice_counts_for_both() -> None:
    partition = make_partition(random_graph(20), "overlapping", 5, 0)
    assert np.array_equal(training_nodes(partition, np.zeros(20, np.int8)), [10] * 5)


def test_split_of_another_graph(partition: Partition) -> None:
    with pytest.raises(FedquiltError, match=r"shape \(5,\).*6 nodes"):
        enough(partition, np.zeros(5, np.int8), 1)
