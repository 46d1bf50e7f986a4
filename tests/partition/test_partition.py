from __future__ import annotations

import numpy as np

from fedquilt.partition.partition import Partition


def test_overlapping_clients_are_listed_one_after_the_other() -> None:
    partition = Partition([np.array([0, 2]), np.array([1, 2, 3])], "any", 0, "toy", 5, "")
    held, owner = partition.flat()
    assert held.tolist() == [0, 2, 1, 2, 3]
    assert owner.tolist() == [0, 0, 1, 1, 1]
    assert partition.sizes.tolist() == [2, 3]
    assert partition.clients == 2


def test_a_partition_without_clients_is_empty() -> None:
    held, owner = Partition([], "any", 0, "toy", 5, "").flat()
    assert held.dtype == np.int64
    assert held.size == owner.size == 0
