"""Products with a constant sparse matrix, forward and backward in one product each."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

# torch announces on first use that CSR support is in beta; every user would see it once a run.
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")


def _to_csr(matrix: sp.csr_matrix) -> Tensor:
    """A scipy CSR matrix as a torch CSR tensor with 32-bit indices (half the index traffic of 64-bit ones)."""
    matrix = matrix.tocsr()
    matrix.sort_indices()
    return torch.sparse_csr_tensor(
        torch.from_numpy(matrix.indptr.astype(np.int32)),
        torch.from_numpy(matrix.indices.astype(np.int32)),
        torch.from_numpy(matrix.data.astype(np.float32)),
        size=matrix.shape,
        check_invariants=False,
    )


class SparseMatrix:
    """A constant sparse matrix S [R, K] that autograd can multiply with: it keeps S and its transpose.

    Memory: 8 bytes a non-zero (16 with the transpose), plus 4 a row.
    """

    def __init__(self, matrix: sp.csr_matrix) -> None:
        self.shape: tuple[int, int] = matrix.shape
        self.forward = _to_csr(matrix)
        self.backward = _to_csr(matrix.T)

    def to(self, device: torch.device) -> SparseMatrix:
        """The same matrix on another device."""
        moved = object.__new__(SparseMatrix)
        moved.shape = self.shape
        moved.forward, moved.backward = self.forward.to(device), self.backward.to(device)
        return moved

    def __matmul__(self, dense: Tensor) -> Tensor:
        """S @ dense, [R, K] x [K, H] -> [R, H], with gradient S^T @ grad to `dense`."""
        product: Tensor = _Product.apply(dense, self)
        return product


def _multiply(csr: Tensor, dense: Tensor) -> Tensor:
    if dense.device.type != "cpu":
        return csr @ dense
    if not torch.backends.mkl.is_available():
        return torch.sparse.mm(csr, dense, "sum")
    # Into memory of our own: unlike the plain product this fills nothing with zeros first, which for X^T g, most of whose
    # rows are empty, saves two fifths of the time.
    out = torch.empty(csr.shape[0], dense.shape[1])
    return torch.addmm(out, csr, dense, beta=0, out=out)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dense: Tensor, matrix: SparseMatrix) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.matrix = matrix
        return _multiply(matrix.forward, dense)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return _multiply(ctx.matrix.backward, grad.contiguous()), None
