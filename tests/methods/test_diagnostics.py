"""`fedquilt.methods.diagnostics` against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.methods.diagnostics import effective_clients, mean_norm, own_weight, pair_median


def test_effective_clients_is_one_alone_and_all_in_the_plain_average() -> None:
    assert float(effective_clients(torch.eye(5))) == pytest.approx(1.0)
    assert float(effective_clients(torch.full((2, 5, 5), 0.2))) == pytest.approx(5.0)


def test_effective_clients_is_the_exponential_of_the_entropy() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 6))
    expected = np.exp(-(weights * np.log(weights)).sum(-1)).mean()
    assert float(effective_clients(torch.from_numpy(weights))) == pytest.approx(expected)


def test_own_weight_is_the_mean_diagonal() -> None:
    weights = np.random.default_rng(1).random((2, 4, 4))
    expected = np.mean([weights[k, i, i] for k in range(2) for i in range(4)])
    assert float(own_weight(torch.from_numpy(weights))) == pytest.approx(expected)


def test_pair_median_leaves_out_the_diagonal() -> None:
    similarity = np.random.default_rng(2).random((3, 3))
    expected = np.median([similarity[0, 1], similarity[0, 2], similarity[1, 2]])
    assert float(pair_median(torch.from_numpy(similarity))) == pytest.approx(expected)
    assert pair_median(torch.from_numpy(np.stack([similarity, 2 * similarity]))).tolist() == [expected, 2 * expected]
    assert pair_median(torch.zeros(2, 1, 1)).tolist() == [1.0, 1.0]


def test_mean_norm() -> None:
    stack = np.random.default_rng(3).normal(size=(3, 4, 5))
    assert float(mean_norm(torch.from_numpy(stack))) == pytest.approx(np.mean([np.linalg.norm(one) for one in stack]))
