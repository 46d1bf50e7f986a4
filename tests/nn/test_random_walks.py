"""Structure embeddings: against dense powers of the walk, and against counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedquilt.cohort.client import Client
from fedquilt.nn import random_walks
from fedquilt.nn.random_walks import Structure, degrees_one_hot, embedding_of, return_chances, structure_embeddings
from support.clients import PADDING, dense_adjacency, lay, random_client


def clients() -> list[Client]:
    rng = np.random.default_rng(4)
    return [random_client(rng, m, nodes=n, edges=0.4) for m, n in enumerate((12, 7, 1))]


def dense_chances(a: np.ndarray, steps: int) -> np.ndarray:
    """diag((A D^-1)^k) for k = 1 .. steps, as the paper writes it."""
    walk = a / np.where(a.sum(0) > 0, a.sum(0), 1.0)
    return np.stack([np.diag(np.linalg.matrix_power(walk, k)) for k in range(1, steps + 1)], axis=1)


@pytest.mark.parametrize("steps", [1, 2, 5, 8])
@pytest.mark.parametrize("entries", [2**22, 20])
def test_return_chances_are_the_diagonals_of_powers(steps: int, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_walks, "ENTRIES", entries)  # 20: a few nodes at a time
    for client in clients():
        expected = dense_chances(dense_adjacency(client).astype(np.float64), steps)
        np.testing.assert_allclose(return_chances(client, steps), expected, atol=1e-6)


def test_walks_follow_edge_weights() -> None:
    client = clients()[0]
    weights = np.asarray(np.random.default_rng(1).uniform(0.2, 3.0, client.graph.edges.shape[1]))
    heavier = replace(client, graph=replace(client.graph, edge_weights=weights))
    a = np.zeros((12, 12))
    u, v = client.graph.edges
    a[u, v] = a[v, u] = weights
    np.testing.assert_allclose(return_chances(heavier, 6), dense_chances(a, 6), atol=1e-6)


def test_degrees_are_capped_on_both_sides() -> None:
    client = clients()[0]
    degree = dense_adjacency(client).sum(1)
    assert degree.max() > 3
    found = degrees_one_hot(client, 3)
    assert found.sum(1).tolist() == [1.0] * 12
    np.testing.assert_array_equal(found.argmax(1) + 1, np.clip(degree, 1, 3))
    assert degrees_one_hot(clients()[2], 3).tolist() == [[1.0, 0.0, 0.0]]  # a node alone


@pytest.mark.parametrize("kind", ["both", "walks", "degrees", "shuffled", "none"])
def test_kinds_leave_out_what_they_say(kind: Structure) -> None:
    client = clients()[0]
    whole = np.hstack([return_chances(client, 4), degrees_one_hot(client, 3)])
    found = embedding_of(client, 4, 3, kind)
    if kind == "shuffled":
        assert not np.array_equal(found, whole)
        np.testing.assert_array_equal(np.unique(found, axis=0), np.unique(whole, axis=0))
        return
    keep = {"both": [1, 1], "walks": [1, 0], "degrees": [0, 1], "none": [0, 0]}[kind]
    np.testing.assert_array_equal(found, whole * np.repeat(keep, [4, 3]))


@pytest.mark.parametrize("rows", PADDING)
def test_a_cohort_has_them_in_its_rows(rows: str) -> None:
    cohort = lay(clients(), rows, "dense")
    found = structure_embeddings(cohort, 4, 3, "both")
    assert structure_embeddings(cohort, 4, 3, "both") is found
    for own, client in zip(cohort.parts_of(found), clients(), strict=True):
        assert torch.equal(own, torch.from_numpy(embedding_of(client, 4, 3, "both")))
