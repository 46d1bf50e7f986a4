"""Surroundings: one layer's operators at some nodes are the rows of the whole graph's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.surroundings import rows_at, surroundings
from support.federations import ragged_clients


@pytest.mark.parametrize("weighted", [False, True])
def test_products_at_inner_rows_are_those_of_the_whole_graph(weighted: bool) -> None:
    clients = ragged_clients((40, 9, 60))
    if weighted:
        rng = np.random.default_rng(0)
        own = [rng.random(c.graph.edges.shape[1]).astype(np.float32) + 0.1 for c in clients]
        clients = [replace(c, graph=replace(c.graph, edge_weights=w)) for c, w in zip(clients, own, strict=True)]
    whole = Cohort(clients)
    h = torch.randn(whole.rows, 5)
    seen = []
    for part in surroundings(whole, 15, features=False):
        for name in ("gcn", "mean", "sums"):
            expected = (getattr(whole, name) @ h)[part.target]
            found = (getattr(part, name) @ rows_at(part, h))[part.inner]
            assert torch.allclose(found, expected, atol=1e-6), name
        seen += part.target.tolist()
        assert part.features == 0
    assert sorted(seen) == whole.nodes.tolist()


def test_features_are_those_of_the_nodes() -> None:
    clients = ragged_clients((40, 9))
    whole = Cohort(clients)
    weight = torch.randn(2, whole.features, 4)
    for part in surroundings(whole, 15, features=True):
        found = (part.smoothed @ weight[part.chosen])[part.inner]
        assert torch.allclose(found, (whole.smoothed @ weight)[part.target], atol=1e-5)
