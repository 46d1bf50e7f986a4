"""The kind `natural`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.partition.make import make_partition
from support.partitions import covers_once, random_graph


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
