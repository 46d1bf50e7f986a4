"""Sums and dot products over the edges of a cohort, for several factors at once.

Factors lie one after the other: row k R + r is node r in factor k, entry k E + e is edge e there, so that scores [K E]
are [K, E] for free. Both operations are one kernel that gathers rows as it goes and writes nothing of size E x d, and
each is the other's gradient. Entries are directed edges (u, v), sorted by u.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort import Cohort


class Edges:
    """The edges of a cohort's graphs (both directions, no self-loops) in K factors.

    Memory: 12 bytes an edge and factor, and 4 a row and factor.

    Attributes:
        factors: K. rows: R, the cohort's rows. count: E, directed edges of one factor.
    """

    def __init__(self, cohort: Cohort, factors: int = 1) -> None:
        blocks = [client.graph.adjacency() for client in cohort.members]
        for block in blocks:
            block.sort_indices()
        one = cohort.diagonal(blocks, cohort.start.tolist(), cohort.rows)
        self.factors, self.rows, self.count = factors, cohort.rows, int(one.nnz)
        # Where the opposite edge is: sorting by (v, u) lists the edges in the order of their opposites.
        place = sp.csr_matrix((np.arange(one.nnz, dtype=np.int64) + 1, one.indices, one.indptr), shape=one.shape)
        opposite = place.T.tocsr()
        opposite.sort_indices()
        shift = torch.arange(factors).unsqueeze(1)
        owner = np.repeat(np.arange(cohort.rows), np.diff(one.indptr))
        self._target = self._in_factors(one.indices, shift * cohort.rows, cohort)
        self._source = self._in_factors(owner, shift * cohort.rows, cohort)
        self._opposite = self._in_factors(opposite.data - 1, shift * self.count, cohort)
        first = self._in_factors(one.indptr[:-1], shift * self.count, cohort)
        self._offsets = torch.cat([first, first.new_tensor([factors * self.count])])

    @staticmethod
    def _in_factors(numbers: np.ndarray, shift: Tensor, cohort: Cohort) -> Tensor:
        return (torch.from_numpy(np.asarray(numbers, dtype=np.int64)) + shift).flatten().int().to(cohort.device)

    def sum(self, weight: Tensor, z: Tensor) -> Tensor:
        """sum_v weight_uv z_v at every u: weight [K E], z [K R, d] -> [K R, d]."""
        out: Tensor = _Sum.apply(weight, z, self)
        return out

    def dot(self, c: Tensor, z: Tensor) -> Tensor:
        """c_u . z_v on every edge: c, z [K R, d] -> [K E]."""
        out: Tensor = _Dot.apply(c, z, self)
        return out

    def _sum(self, weight: Tensor, z: Tensor) -> Tensor:
        if not self.count:
            return torch.zeros_like(z)
        return torch.embedding_bag(z.contiguous(), self._target, self._offsets, False, 0, False, weight, True)[0]

    def _dot(self, c: Tensor, z: Tensor) -> Tensor:
        if not self.count:
            return z.new_zeros(0)
        # The gradient of a bag of embeddings with respect to its weights is just this product.
        gradient = torch.ops.aten._embedding_bag_per_sample_weights_backward
        out: Tensor = gradient(c.contiguous(), z.contiguous(), self._target, self._offsets[:-1], self._source, 0)
        return out

    def _turned(self, weight: Tensor) -> Tensor:
        """The weight of each edge's opposite."""
        return weight.index_select(0, self._opposite)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight: Tensor, z: Tensor, edges: Edges) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(weight, z)
        ctx.edges = edges
        return edges._sum(weight, z)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:  # type: ignore[no-untyped-def]
        weight, z = ctx.saved_tensors
        to_weight = ctx.edges._dot(grad, z) if ctx.needs_input_grad[0] else None
        return to_weight, ctx.edges._sum(ctx.edges._turned(weight), grad), None


class _Dot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, c: Tensor, z: Tensor, edges: Edges) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(c, z)
        ctx.edges = edges
        return edges._dot(c, z)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[no-untyped-def]
        c, z = ctx.saved_tensors
        return ctx.edges._sum(grad, z), ctx.edges._sum(ctx.edges._turned(grad), c), None
