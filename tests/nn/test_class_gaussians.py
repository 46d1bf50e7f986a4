"""Class-wise Gaussians and the labels that may be read, against NumPy."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.cohort.client import Client
from fedquilt.graphs.split import TRAIN
from fedquilt.nn.class_gaussians import class_gaussians, neighbouring_labels, sound_roots, training_labels
from fedquilt.nn.spectral import client_basis
from fedquilt.tasks.node_classification import labels, training_homophily
from support.clients import assert_near, lay, numbers
from support.federations import ragged_clients
from support.labelled import gcn_operator, known_labels, odd_clients


def relabelled(client: Client) -> Client:
    y = client.graph.y.copy()
    hidden = (client.split != TRAIN) & (y >= 0)
    y[hidden] = (y[hidden] + 1) % client.graph.classes
    return Client(client.id, replace(client.graph, y=y), client.split)


def test_labels_enter_only_where_they_train() -> None:
    clients = ragged_clients()
    others = [relabelled(client) for client in clients]
    for rows in ("padded", "compact"):
        cohort = lay(clients, rows)
        found = neighbouring_labels(cohort)
        assert torch.equal(found, neighbouring_labels(lay(others, rows)))
        known = training_labels(cohort)
        assert torch.equal(known, training_labels(lay(others, rows)))
        for m, client in enumerate(clients):
            expected = gcn_operator(client) @ known_labels(client)
            assert_near(cohort.parts_of(found)[m], torch.from_numpy(expected))
            assert_near(cohort.parts_of(known)[m], torch.from_numpy(known_labels(client)))
    for client, other in zip(clients, others, strict=True):
        assert not np.array_equal(client.graph.y, other.graph.y)
        assert training_homophily(client) == training_homophily(other)
        assert np.array_equal(client_basis(client, "unifilter", 4, 0.8), client_basis(other, "unifilter", 4, 0.8))


@pytest.mark.parametrize("rows", ["padded", "compact"])
def test_class_gaussians_equal_numpy(rows: str) -> None:
    clients = odd_clients()
    cohort = lay(clients, rows)
    mean, logvar = numbers(0, len(cohort.train), 6), numbers(1, len(cohort.train), 6)
    found = class_gaussians(cohort, mean, logvar)
    counts = []
    for m, c in itertools.product(range(3), range(3)):
        mine = ((cohort.client[cohort.train] == m) & (labels(cohort)[cohort.train] == c)).numpy()
        n, mu, variance = int(mine.sum()), mean.double().numpy()[mine], np.exp(logvar.double().numpy()[mine])
        counts.append(n)
        assert float(found[2][m, c]) == n
        if n == 0:
            assert not found[0][m, c].any()
            assert_near(found[1][m, c], torch.eye(6))
            continue
        empirical = np.cov(mu.T, bias=True) if n > 1 else np.zeros((6, 6))
        shrunk = n / (n + 6) * empirical + 6 / (n + 6) * np.diag(np.diag(empirical))
        assert_near(found[0][m, c], torch.from_numpy(mu.mean(0)))
        assert_near(found[1][m, c], torch.from_numpy(shrunk + np.diag(variance.mean(0))))
    assert 0 in counts
    assert 1 in counts
    assert max(counts) > 3
    assert (torch.linalg.eigvalsh(found[1].double()) > 0).all()
    assert_near(found[1], found[1].mT)


@given(st.integers(0, 2**31), st.integers(1, 6), st.sampled_from([0.1, 10.0, 1e4]))
def test_noised_covariances_are_made_sound_and_sound_ones_left_alone(seed: int, width: int, noise: float) -> None:
    some = numbers(seed, 4, width, width)
    sound = some @ some.mT + 0.1 * torch.eye(width)
    root, repaired = sound_roots(sound)
    assert repaired is None
    assert_near(root @ root.mT, sound)
    noised = sound + noise * numbers(seed + 1, 4, width, width)
    noised[0] = -torch.eye(width)
    noised[1, 0, 0] = torch.nan
    root, repaired = sound_roots(noised)
    assert repaired is not None
    assert torch.isfinite(root).all()
    symmetric = torch.tril(repaired) + torch.tril(repaired, -1).mT  # what Cholesky reads
    assert (torch.linalg.eigvalsh(symmetric.double()) > 0).all()
    assert_near(repaired[0], 0.01 * torch.eye(width))
