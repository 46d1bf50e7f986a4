"""The kind `louvain-50`."""

from __future__ import annotations

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.partition.make import make_partition
from support.partitions import cliques, covers_once


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
