"""Noise on features: what changes, how often, and what a noisy feature is."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.graphs.graph import Graph
from fedquilt.scenarios.feature_noise import noisy_features, with_feature_noise

N, F = 400, 6


def dense() -> np.ndarray:
    rng = np.random.default_rng(0)
    binary = (rng.random((N, 2)) < 0.2).astype(np.float32)
    counts = rng.poisson(1.5, (N, 2)).astype(np.float32)
    return np.concatenate([binary, counts, rng.normal(50, 9, (N, 2)).astype(np.float32)], axis=1)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_without_noise_nothing_changes_and_the_graph_never_does(form: type) -> None:
    graph = Graph("g", np.array([[0], [1]]), form(dense()), np.zeros(N, np.int64), 1)
    assert with_feature_noise(graph, 0.0, rng()) is graph
    noisy = with_feature_noise(graph, 0.5, rng())
    assert noisy.sparse == graph.sparse
    assert noisy.edges is graph.edges
    np.testing.assert_array_equal(graph.x.toarray() if graph.sparse else graph.x, dense())
    noisy.validate()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("chance", [0.1, 0.5, 1.0])
def test_a_cell_changes_as_often_as_the_formula_says(form: type, chance: float) -> None:
    """Over many draws: P(cell = v) = (1 - p) [x = v] + p (share of v in the column)."""
    x = dense()[:30]
    given = form(x)
    ones = np.zeros((30, 2))
    draws = 2000
    generator = rng()
    for _ in range(draws):
        noisy = noisy_features(given, chance, generator)
        ones += (noisy.toarray() if sp.issparse(noisy) else noisy)[:, :2]
    share = x[:, :2].mean(0)
    expected = (1 - chance) * x[:, :2] + chance * share
    assert np.abs(ones / draws - expected).max() < 5 * np.sqrt(0.25 / draws)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_a_noisy_feature_is_one_of_its_column(form: type) -> None:
    x = dense()
    noisy = noisy_features(form(x), 1.0, rng())
    noisy = noisy.toarray() if sp.issparse(noisy) else noisy
    for column in range(F):
        assert set(noisy[:, column]) <= set(x[:, column])
        assert noisy[:, column].mean() == pytest.approx(x[:, column].mean(), abs=5 * x[:, column].std() / np.sqrt(N))
        assert abs(np.corrcoef(noisy[:, column], x[:, column])[0, 1]) < 0.25  # nothing is left of it


def test_features_without_a_value_stay() -> None:
    empty = sp.csr_matrix((5, 3), dtype=np.float32)
    assert noisy_features(empty, 1.0, rng()).nnz == 0
    full = sp.csr_matrix(np.full((5, 3), 2.0, np.float32))
    np.testing.assert_array_equal(noisy_features(full, 1.0, rng()).toarray(), 2.0)
