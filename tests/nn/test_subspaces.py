"""Projectors onto the subspaces of energies, against bases by NumPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedquilt.errors import FedquiltError
from fedquilt.nn.subspaces import projectors
from support.clients import assert_near

seeds = st.integers(0, 2**31)


def chordal(places: Tensor) -> Tensor:
    """The distance k-means sees between projectors, over the square root of two."""
    return torch.cdist(places.flatten(1).double(), places.flatten(1).double()) / math.sqrt(2)


@settings(max_examples=15)
@given(seed=seeds, width=st.integers(5, 32), orders=st.integers(1, 5))
def test_distances_equal_equation_12(seed: int, width: int, orders: int) -> None:
    """(K + 1 - ||Q_m^T Q_n||^2)^1/2 with bases by QR, for energies of full rank."""
    rng = np.random.default_rng(seed)
    # Far from singular: orthonormal columns times a well conditioned matrix.
    energies = [
        np.linalg.qr(rng.standard_normal((width, orders)))[0]
        @ (np.eye(orders) + np.triu(rng.random((orders,) * 2), 1) / 4)
        for _ in range(4)
    ]
    found = chordal(projectors(torch.from_numpy(np.stack(energies)).float()))
    bases = [np.linalg.qr(each)[0] for each in energies]
    for i, j in itertools.product(range(4), repeat=2):
        square = orders - np.linalg.norm(bases[i].T @ bases[j]) ** 2
        assert float(found[i, j]) ** 2 == pytest.approx(square, abs=1e-4)


@settings(max_examples=15)
@given(seed=seeds)
def test_distances_do_not_depend_on_the_basis_of_a_subspace(seed: int) -> None:
    rng = np.random.default_rng(seed)
    energies = np.linalg.qr(rng.standard_normal((3, 12, 4)))[0]
    change = np.linalg.qr(rng.standard_normal((3, 4, 4)))[0] @ np.diag([1.0, 3.0, 0.5, 2.0])
    one, two = (projectors(torch.from_numpy(e).float()) for e in (energies, energies @ change))
    assert_near(one, two)
    assert torch.equal(projectors(torch.from_numpy(energies).float()), one)
    together = chordal(torch.cat([one, two]))
    assert float(together[range(3), range(3, 6)].max()) < 1e-3  # the same subspaces: no distance
    assert_near(together, together.T)
    assert float(together[0, 1]) > 0.5


def test_projectors_of_deficient_energies() -> None:
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((8, 2)) @ rng.standard_normal((2, 5))  # rank two in five columns
    # A column is a coefficient times a mean: a coefficient of zero takes a dimension away.
    thin = rng.standard_normal((8, 5)) * np.array([1.0, 1.0, 0.0, 1.0, 0.0])
    wide = rng.standard_normal((8, 5))
    places = projectors(torch.from_numpy(np.stack([flat, thin, np.zeros((8, 5)), wide])).float())
    assert torch.isfinite(places).all()
    assert_near(places.diagonal(dim1=1, dim2=2).sum(1), torch.tensor([2.0, 3.0, 0.0, 5.0]))
    assert_near(places @ places, places)
    # ((r + s) / 2 - ||Q^T P||^2)^1/2 for subspaces of r and s dimensions
    ranks, found = (2, 3, 0, 5), chordal(places)
    bases = [np.linalg.svd(e)[0][:, :r] for e, r in zip((flat, thin, np.zeros((8, 5)), wide), ranks, strict=True)]
    for i, j in itertools.product(range(4), repeat=2):
        square = (ranks[i] + ranks[j]) / 2 - np.linalg.norm(bases[i].T @ bases[j]) ** 2
        assert float(found[i, j]) ** 2 == pytest.approx(square, abs=1e-4)
    few = projectors(torch.from_numpy(rng.standard_normal((3, 4, 9))).float())  # more orders than dimensions
    assert_near(few, torch.eye(4).expand(3, -1, -1))


def test_energies_that_are_not_finite_are_a_divergence() -> None:
    with pytest.raises(FedquiltError, match="Training diverged: the spectral energies of a client are not finite"):
        projectors(torch.full((1, 4, 3), float("nan")))
