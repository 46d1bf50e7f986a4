"""Products of features with all clients' weights, and of propagated features, against dense ones."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.cohort.batches import Batch
from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.features import SPARSE_LIMIT, FeatureMatrix, root_mean_square_length
from fedquilt.cohort.sparse import SparseMatrix
from support.clients import (
    LAYOUTS,
    PADDING,
    assert_near,
    client_lists,
    dense_features,
    gcn_operator,
    lay,
    mean_operator,
    random_client,
)
from support.federations import FEATURES, ragged_clients

seeds = st.integers(0, 2**31)


@pytest.mark.parametrize(("rows", "features"), LAYOUTS)
@settings(max_examples=15)
@given(clients=client_lists(), seed=seeds)
def test_feature_products_equal_dense_ones(rows: str, features: str, clients: list[Client], seed: int) -> None:
    cohort = lay(clients, rows, features)
    stream = torch.Generator().manual_seed(seed)
    weight = torch.randn(len(clients), cohort.features, 4, generator=stream).requires_grad_()
    pull = cohort.rows_of([torch.randn(n, 4, generator=stream) for n in cohort.sizes], 0.0)
    operators = {"x": lambda c: np.eye(c.graph.nodes), "smoothed": gcn_operator, "mean_x": mean_operator}
    for name, operator in operators.items():
        out = getattr(cohort, name) @ weight
        (grad,) = torch.autograd.grad((out * pull).sum(), weight)
        assert out.shape == (cohort.rows, 4)
        for m, client in enumerate(clients):
            full = torch.from_numpy(operator(client) @ dense_features(client).astype(np.float64))
            assert_near(cohort.parts_of(out.detach())[m], full @ weight[m].detach().double())
            assert_near(grad[m], full.T @ cohort.parts_of(pull)[m].double())


@pytest.mark.parametrize("stored", [False, True])
def test_features_are_multiplied_sparsely_where_they_are_sparse(stored: bool) -> None:
    """It depends on how many entries are filled, not on how they are stored."""
    rng = np.random.default_rng(0)
    few, many = (random_client(rng, 0, 200, 20, filled=f, sparse=stored) for f in (0.1, 0.3))
    assert Cohort([few]).x.sparse is not None
    assert Cohort([few]).x.dense is None
    assert Cohort([many]).x.sparse is None
    assert Cohort([many]).x.dense is not None
    assert 0.1 < SPARSE_LIMIT < 0.3


@pytest.mark.parametrize("operator", ["gcn", "mean"])
@pytest.mark.parametrize("rows", PADDING)
def test_a_propagation_is_multiplied_in_or_applied_after(rows: str, operator: str) -> None:
    """P (X W) where P X would fill up, (P X) W where not, and both are the same product."""
    rng = np.random.default_rng(0)
    few = [random_client(rng, m, n, 40, edges=0.2, filled=0.08, sparse=True) for m, n in enumerate((30, 25, 14))]
    lone = [random_client(rng, m, n, 40, edges=0.0, filled=0.1, sparse=True) for m, n in enumerate((30, 25, 14))]
    full = [random_client(rng, m, n, 40, edges=0.4, filled=0.9) for m, n in enumerate((30, 25, 14))]
    for clients, after in ((few, True), (lone, False), (full, False)):
        cohort = lay(clients, rows)
        operators = [getattr(c, operator) for c in clients]
        chosen = FeatureMatrix(cohort, [c.graph.x for c in clients], getattr(cohort, operator))
        assert (chosen.operator is not None) == after
        weight = torch.randn(3, 40, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
        pull = cohort.rows_of([torch.randn(n, 5) for n in cohort.sizes], 0.0)
        joined = FeatureMatrix(cohort, [p @ c.graph.x for p, c in zip(operators, clients, strict=True)])
        assert joined.operator is None
        apart = FeatureMatrix(cohort, [c.graph.x for c in clients])
        apart.operator = SparseMatrix(cohort.diagonal(operators, cohort.start.tolist(), cohort.rows))
        outs = [matrix @ weight for matrix in (chosen, joined, apart)]
        grads = [torch.autograd.grad((out * pull).sum(), weight)[0] for out in outs]
        for one, two in itertools.pairwise(outs):
            assert_near(one.detach(), two.detach())
        for one, two in itertools.pairwise(grads):
            assert_near(one, two)
        own = {"gcn": gcn_operator, "mean": mean_operator}[operator]
        for m, client in enumerate(clients):
            full_product = torch.from_numpy(own(client) @ dense_features(client).astype(np.float64))
            assert_near(cohort.parts_of(outs[0].detach())[m], full_product @ weight[m].detach().double())
            assert_near(grads[0][m], full_product.T @ cohort.parts_of(pull)[m].double())


def test_sparse_features_of_one_step_are_not_smoothed_ahead() -> None:
    clients = ragged_clients((20, 12), sparse=True)
    weight = torch.randn(2, FEATURES, 3)
    whole = Cohort(clients)
    batch = Batch(clients, whole)
    assert batch.smoothed.operator is batch.gcn
    assert torch.allclose(batch.smoothed @ weight, whole.smoothed @ weight, atol=1e-5)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_the_length_of_features_is_the_root_of_the_mean_square_over_nodes(kind: Any) -> None:
    x = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [0.0, 5.0, 12.0]], dtype=np.float32)
    assert root_mean_square_length(kind(x)) == pytest.approx(np.sqrt((25 + 0 + 169) / 3))
    assert root_mean_square_length(kind(x * 0)) == 1.0
    assert root_mean_square_length(kind(x[:0])) == 1.0


def test_the_length_of_large_features_is_computed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedquilt.graphs.column_sums._BLOCK", 16)
    x = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    assert root_mean_square_length(x) == pytest.approx(np.sqrt((x.astype(float) ** 2).sum(1).mean()))
