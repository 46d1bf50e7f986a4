"""Products with a constant sparse matrix equal dense ones, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.cohort.sparse import SparseMatrix
from support.clients import assert_near


def draw(rng: np.random.Generator, rows: int, columns: int, filled: float) -> sp.csr_matrix:
    full = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < filled)
    return sp.csr_matrix(full.astype(np.float32))


@given(
    seed=st.integers(0, 2**31),
    shape=st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 9)),
    filled=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_product_and_gradient(seed: int, shape: tuple[int, int, int], filled: float) -> None:
    rows, inside, columns = shape
    rng = np.random.default_rng(seed)
    matrix = draw(rng, rows, inside, filled)
    full = torch.from_numpy(matrix.toarray()).double()
    sparse = SparseMatrix(matrix)
    assert sparse.shape == (rows, inside)
    dense = torch.from_numpy(rng.standard_normal((inside, columns)).astype(np.float32)).requires_grad_()
    pull = torch.from_numpy(rng.standard_normal((rows, columns)).astype(np.float32))
    out = sparse @ dense
    (out * pull).sum().backward()
    assert_near(out.detach(), full @ dense.detach().double())
    assert_near(dense.grad, full.T @ pull.double())


@given(seed=st.integers(0, 2**31), n=st.integers(1, 15))
def test_a_symmetric_matrix_is_its_own_transpose(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    half = draw(rng, n, n, 0.3)
    sparse = SparseMatrix((half + half.T).tocsr())
    assert torch.equal(sparse.backward.to_dense(), sparse.forward.to_dense())
    dense, pull = (torch.from_numpy(rng.standard_normal((n, 3)).astype(np.float32)) for _ in range(2))
    _, grad = torch.autograd.functional.vjp(lambda d: sparse @ d, dense, pull)
    assert_near(grad, sparse @ pull)


def test_columns_need_not_be_sorted_nor_contiguous() -> None:
    matrix = sp.csr_matrix(
        (np.array([1.0, 2.0, 3.0], np.float32), np.array([2, 0, 1]), np.array([0, 2, 3])), shape=(2, 3)
    )
    full = torch.from_numpy(matrix.toarray())
    dense = torch.arange(12.0).view(4, 3).T.requires_grad_()  # not contiguous
    out = SparseMatrix(matrix) @ dense
    assert torch.equal(out, full @ dense)
    out.sum().backward()  # the gradient that comes in is expanded, hence not contiguous either
    assert torch.equal(dense.grad, full.T @ torch.ones(2, 4))


def test_moving_keeps_both_directions() -> None:
    matrix = draw(np.random.default_rng(0), 4, 3, 0.5)
    moved = SparseMatrix(matrix).to(torch.device("cpu"))
    assert moved.shape == (4, 3)
    assert torch.equal(moved.backward.to_dense(), torch.from_numpy(matrix.toarray()).T)
    assert torch.equal(moved.forward.to_dense(), torch.from_numpy(matrix.toarray()))
    assert torch.equal(moved @ torch.eye(3), torch.from_numpy(matrix.toarray()))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RuntimeError):
        SparseMatrix(draw(np.random.default_rng(0), 4, 3, 0.5)) @ torch.ones(4, 2)
