"""`FeatureMatrix`: the constant features of a cohort, multiplied by each client's own weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort.rows import Rows
from fedquilt.cohort.sparse import SparseMatrix
from fedquilt.graphs.arrays import Features
from fedquilt.graphs.column_sums import row_blocks

# Up to this share of non-zeros, a product with sparse features is faster than a dense one.
SPARSE_LIMIT = 0.15


class FeatureMatrix:
    """Constant features X [R, F], multiplied by each client's own weights: X_m W_m, or (P X)_m W_m.

    Sparse: client m's columns are shifted by m F, so the product with all clients' stacked weights is one sparse product
    with ``W.reshape(M F, H)``. Dense: one batched product, or one product per client.

    The propagation operator P is constant too. P X is computed once, unless it has so many more non-zeros than a sparse X that
    P (X W) costs less than (P X) W: on Cora in ten parts, 57 thousand non-zeros per product instead of 159 thousand. For a
    sparse X of rows that are used for one step only, P X would cost more than it saves.
    """

    def __init__(self, cohort: Rows, parts: Sequence[Features], operator: SparseMatrix | None = None) -> None:
        """`parts` holds X_m [n_m, F] of each client; `operator` is P [R, R], or None."""
        self.cohort = cohort
        self.sparse: SparseMatrix | None = None
        self.dense: Tensor | None = None
        self.operator: SparseMatrix | None = None
        x = laid(cohort, parts)
        if operator is not None and cohort.fleeting and sp.issparse(x):
            self.operator = operator
        elif operator is not None:
            p = as_scipy(operator)
            joined = p @ x
            if is_sparse(cohort, x) and filled(x) + p.nnz < filled(joined):
                self.operator = operator
            else:
                x = joined
        self._store(x)

    @classmethod
    def of_rows(cls, cohort: Rows, x: Features) -> FeatureMatrix:
        """The same of features that lie in the cohort's rows already: [R, F]."""
        made = object.__new__(cls)
        made.cohort, made.sparse, made.dense, made.operator = cohort, None, None, None
        made._store(x)
        return made

    def _store(self, x: Features) -> None:
        if is_sparse(self.cohort, x):
            self.sparse = SparseMatrix(self.cohort.stack(sp.csr_matrix(x))).to(self.cohort.device)
        else:
            self.dense = torch.from_numpy(x if isinstance(x, np.ndarray) else x.toarray()).to(self.cohort.device)

    def __matmul__(self, weight: Tensor) -> Tensor:
        """Compute X_m W_m (or P_m X_m W_m) for every client: weight [M, F, H] -> [R, H]."""
        if self.sparse is not None:
            product = self.sparse @ weight.reshape(-1, weight.shape[-1])
        else:
            assert self.dense is not None
            product = self.cohort.multiply(self.dense, weight)
        return product if self.operator is None else self.operator @ product


def is_sparse(cohort: Rows, x: Features) -> bool:
    """Whether features [R, F] have so few non-zeros that a sparse product is faster."""
    return filled(x) <= SPARSE_LIMIT * sum(cohort.sizes) * x.shape[1]


def laid(cohort: Rows, parts: Sequence[Features]) -> Features:
    """Place the clients' features in their rows: [R, F] float32, sparse if any client's are."""
    if any(sp.issparse(part) for part in parts):
        blocks = [part if sp.issparse(part) else sp.csr_matrix(part) for part in parts]
        return cohort.diagonal(blocks, [0] * len(blocks), blocks[0].shape[1]).astype(np.float32, copy=False)
    tensors = [torch.from_numpy(np.asarray(part, dtype=np.float32)) for part in parts]
    rows: np.ndarray = cohort.laid(tensors, 0.0).numpy()
    return rows


def filled(x: Features) -> int:
    """The number of entries that are not zero."""
    return int(np.count_nonzero(x if isinstance(x, np.ndarray) else x.data))


def root_mean_square_length(x: Features) -> float:
    """The root of the mean squared length of the rows of x [n, F]; 1 where all are zero, or there are none."""
    if sp.issparse(x):
        squares = float(np.square(x.data, dtype=np.float64).sum())
    else:  # a block at a time: mapped features may not fit into memory
        squares = float(sum(np.square(x[rows], dtype=np.float64).sum() for rows in row_blocks(x)))
    return math.sqrt(squares / x.shape[0]) if squares > 0 else 1.0


def as_scipy(matrix: SparseMatrix) -> sp.csr_matrix:
    """Return the matrix as scipy CSR on the host; without a copy if it is on the CPU."""
    csr = matrix.forward
    parts = (part.cpu().numpy() for part in (csr.values(), csr.col_indices(), csr.crow_indices()))
    return sp.csr_matrix(tuple(parts), shape=matrix.shape)
