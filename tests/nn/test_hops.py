"""Products of propagated features with all clients' weights, stored or computed step by step, against dense ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.cohort.client import Client
from fedquilt.nn.hops import Hops, hops_of
from support.clients import (
    PADDING,
    Largest,
    assert_near,
    dense_features,
    gcn_operator,
    lay,
    random_client,
    with_weights,
)

# Density of the features, and of the edges: what is stored as an array, as a sparse matrix, and not at all.
CASES = {"dense": (0.5, 0.3), "sparse": (0.004, 0.02), "products": (0.03, 0.2)}


def clients_of(case: str) -> list[Client]:
    filled, edges = CASES[case]
    rng = np.random.default_rng(3)
    sizes = (9, 17, 1, 12)
    return with_weights([random_client(rng, m, n, 120, edges=edges, filled=filled) for m, n in enumerate(sizes)])


@pytest.mark.parametrize("only_last", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("case", CASES)
def test_products_equal_dense_ones(case: str, rows: str, count: int, only_last: bool) -> None:
    clients = clients_of(case)
    cohort = lay(clients, rows)
    hops = Hops(cohort, count, only_last)
    assert hops.stored == (case != "products")
    weight = torch.randn(len(clients), 120, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    whole, training = hops @ weight, hops.at_training(weight)
    steps = range(count if only_last else 0, count + 1)
    assert len(whole) == len(training) == len(steps)
    pull = torch.randn(len(cohort.train), 5, generator=torch.Generator().manual_seed(1))
    for step, found, at in zip(steps, whole, training, strict=True):
        assert at.shape == (cohort.training.rows, 5)
        assert_near(at.detach()[cohort.training.real], found.detach()[cohort.train])
        (one,) = torch.autograd.grad((found[cohort.train] * pull).sum(), weight, retain_graph=True)
        (two,) = torch.autograd.grad((at[cohort.training.real] * pull).sum(), weight, retain_graph=True)
        assert_near(two, one)
        for m, client in enumerate(clients):
            spread = np.linalg.matrix_power(gcn_operator(client), step) @ dense_features(client)
            assert_near(cohort.parts_of(found.detach())[m], torch.from_numpy(spread) @ weight[m].detach().double())


def test_they_are_made_once() -> None:
    cohort = lay(clients_of("dense"))
    assert hops_of(cohort, 2) is hops_of(cohort, 2)
    assert hops_of(cohort, 2) is not hops_of(cohort, 2, only_last=True)
    assert hops_of(cohort, 3).hops == 3


def test_at_the_training_nodes_a_step_reads_no_other_rows_where_hops_are_stored() -> None:
    cohort = lay(clients_of("dense"), "compact")
    hops, weight = hops_of(cohort, 2, only_last=True), torch.ones(4, 120, 7)
    hops.at_training(weight)
    with Largest() as largest:
        hops.at_training(weight)
    assert largest.numbers == cohort.training.rows * 120
    assert cohort.training.rows < cohort.rows
