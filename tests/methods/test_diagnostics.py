"""`fedquilt.methods.diagnostics` against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.methods import diagnostics
from fedquilt.methods.diagnostics import effective_clients, mean_norm, pair_median, spread
from fedquilt.methods.fedsheafhn import personal_share


def test_effective_clients_is_one_alone_and_all_in_the_plain_average() -> None:
    assert float(effective_clients(torch.eye(5))) == pytest.approx(1.0)
    assert float(effective_clients(torch.full((2, 5, 5), 0.2))) == pytest.approx(5.0)


def test_effective_clients_is_the_exponential_of_the_entropy() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 6))
    expected = np.exp(-(weights * np.log(weights)).sum(-1)).mean()
    assert float(effective_clients(torch.from_numpy(weights))) == pytest.approx(expected)


def test_pair_median_leaves_out_the_diagonal(monkeypatch: pytest.MonkeyPatch) -> None:
    similarity = np.random.default_rng(2).random((3, 3))
    expected = np.median([similarity[0, 1], similarity[0, 2], similarity[1, 2]])
    assert float(pair_median(torch.from_numpy(similarity))) == pytest.approx(expected)
    assert pair_median(torch.from_numpy(np.stack([similarity, 2 * similarity]))).tolist() == [expected, 2 * expected]
    assert pair_median(torch.zeros(2, 1, 1)).tolist() == [1.0, 1.0]
    monkeypatch.setattr(diagnostics, "MANY", 2)  # the same of many clients, row by row
    assert pair_median(torch.from_numpy(np.stack([similarity, 2 * similarity]))).tolist() == [expected, 2 * expected]


def test_mean_norm() -> None:
    stack = np.random.default_rng(3).normal(size=(3, 4, 5))
    assert float(mean_norm(torch.from_numpy(stack))) == pytest.approx(np.mean([np.linalg.norm(one) for one in stack]))


def test_how_far_clients_weights_are_apart() -> None:
    stacks = {"a": torch.randn(4, 2, 3), "b": torch.randn(4, 5)}
    began = {"a": torch.randn(6), "b": torch.randn(5)}
    flat = torch.cat([w.flatten(1) for w in stacks.values()], 1)
    share, distance = spread(stacks, began)
    assert float(distance) == pytest.approx(float(torch.pdist(flat).square().mean().sqrt()), rel=1e-5)
    assert float(share) == pytest.approx(float(personal_share(stacks, began)), rel=1e-5)
    same, none = spread({"a": torch.ones(3, 2)}, {"a": torch.zeros(2)})
    assert (float(same), float(none)) == (0.0, 0.0)
    assert float(spread({"a": torch.ones(1, 3)}, {"a": torch.zeros(3)})[1]) == 0.0
