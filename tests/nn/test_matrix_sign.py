"""Functions of symmetric matrices, against NumPy's eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.nn.matrix_sign import SQUARINGS, largest_eigenvalue, matrix_sign


def symmetric(rng: np.random.Generator, value: np.ndarray) -> np.ndarray:
    """Matrices with these eigenvalues, [B, n] -> [B, n, n]."""
    basis = np.linalg.qr(rng.standard_normal((*value.shape, value.shape[-1])))[0]
    return (basis * value[:, None]) @ basis.transpose(0, 2, 1)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), width=st.integers(1, 16), closest=st.sampled_from([1e-3, 1e-6, 1e-10]))
def test_the_sign_has_the_eigenvectors_and_the_signs_of_the_eigenvalues(seed: int, width: int, closest: float) -> None:
    rng = np.random.default_rng(seed)
    value = rng.choice([-1.0, 1.0], (3, width)) * np.exp(rng.uniform(np.log(closest), 0.0, (3, width)))
    value[0, 0], value[1, 0] = 1.0, -closest
    matrix = symmetric(rng, value)
    found = matrix_sign(torch.from_numpy(matrix), closest)
    for mine, given_matrix in zip(found.numpy(), matrix, strict=True):
        values, vectors = np.linalg.eigh(given_matrix)
        assert mine == pytest.approx((vectors * np.sign(values)) @ vectors.T, abs=1e-15 / closest + 1e-9)


def test_smaller_eigenvalues_keep_their_sign() -> None:
    matrix = torch.diag(torch.tensor([1e-5, 0.0, -1e-5, 0.5], dtype=torch.float64))
    found = matrix_sign(matrix, 1e-3).diagonal()
    assert 0.0 < float(found[0]) < 1.0
    assert found[1:3].tolist() == [0.0, -float(found[0])]
    assert float(found[3]) == pytest.approx(1.0)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), width=st.integers(1, 16), scale=st.sampled_from([1e-20, 1.0, 1e20]))
def test_the_largest_eigenvalue(seed: int, width: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    value = scale * rng.random((4, width)) ** rng.integers(1, 9)
    value[0] = 0.0
    found = largest_eigenvalue(torch.from_numpy(symmetric(rng, value))).numpy()
    assert (found <= value.max(1) * (1 + 1e-9)).all()
    assert (found >= value.max(1) * (1 - (width - 1) / (np.e * 2**SQUARINGS) - 1e-9)).all()
