"""Sums and dot products over pairs of rows: the edges of a cohort's graphs, or any other list of pairs.

Each operation is one kernel that gathers rows on the fly and stores nothing of size pairs x width. Each is the gradient
of the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.client import joined_weights
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.memo import Memo
from fedquilt.devices.device import has_kernels
from fedquilt.devices.embedding_bag import pair_products
from fedquilt.graphs import operators

NARROW = 8  # columns of a sampled product, at least


class Links:
    """Pairs (u, v) of rows, sorted by u.

    Memory: 12 bytes per pair and 4 per row; gradients take another 16 per pair and 4 per row.

    Attributes:
        count: E, the number of pairs. rows: R, the u are row numbers below it. columns: C, the v are row numbers below it.
        each: the number of pairs of every u, where all have equally many; else None.
    """

    def __init__(self, source: Tensor, target: Tensor, rows: int, columns: int | None = None) -> None:
        """`source` [E] u in rising order, `target` [E] v. C is R unless `columns` says otherwise."""
        self.rows, self.count, self.columns = rows, len(source), rows if columns is None else columns
        self.each: int | None = None
        self.source, self.target = source.int(), target.int()
        first = torch.arange(rows + 1, device=source.device, dtype=source.dtype)
        self._offsets = torch.searchsorted(source.contiguous(), first, out_int32=True)

    @classmethod
    def equally_many(cls, target: Tensor, columns: int) -> Links:
        """Pair each u = 0, 1, ... with k rows below `columns`: target [R, k]."""
        links = object.__new__(cls)
        links.rows, links.each = target.shape
        links.columns, links.count = columns, target.numel()
        links._offsets = torch.arange(links.rows + 1, device=target.device, dtype=torch.int32) * links.each
        links.source = torch.arange(links.rows, device=target.device, dtype=torch.int32).repeat_interleave(links.each)
        links.target = target.int().flatten()
        return links

    def retargeted(self, target: Tensor) -> Links:
        """Pair the same u with other rows: target [E]."""
        links = object.__new__(Links)
        links.rows, links.count, links.source, links._offsets = self.rows, self.count, self.source, self._offsets
        links.columns, links.each, links.target = self.columns, self.each, target.int()
        return links

    def total(self, values: Tensor) -> Tensor:
        """sum_v values_uv at every u: [E] -> [R]."""
        if self.each is not None:
            return values.view(self.rows, self.each).sum(1)
        return torch.zeros(self.rows, device=values.device).index_add(0, self.source, values)

    def sum(self, weight: Tensor, z: Tensor) -> Tensor:
        """sum_v weight_uv z_v at every u: weight [E], z [C, d] -> [R, d]."""
        out: Tensor = _Sum.apply(weight, z, self)
        return out

    def sum_onto(self, weight: Tensor, z: Tensor) -> Tensor:
        """z_u + sum_v weight_uv z_v at every u, where R is C: weight [E], z [R, d] -> [R, d]."""
        out: Tensor = _SumOnto.apply(weight, z, self)
        return out

    def dot(self, c: Tensor, z: Tensor) -> Tensor:
        """c_u . z_v of every pair: c [R, d], z [C, d] -> [E]."""
        out: Tensor = _Dot.apply(c, z, self)
        return out

    def self_dot(self, z: Tensor) -> Tensor:
        """z_u . z_v of every pair, where R is C: z [R, d] -> [E]."""
        out: Tensor = _SelfDot.apply(z, self)
        return out

    @cached_property
    def turned(self) -> tuple[Links, Tensor]:
        """Return the pairs (v, u) sorted by v, and the index of each among the pairs (u, v)."""
        order = self.target.argsort(stable=True)
        return Links(self.target.long()[order], self.source[order], self.columns, self.rows), order

    @cached_property
    def _pattern(self) -> Tensor:
        return self._matrix(torch.zeros(self.count, device=self.source.device))

    def _matrix(self, values: Tensor) -> Tensor:
        size = (self.rows, self.columns)
        return torch.sparse_csr_tensor(self._offsets, self.target, values, size=size, check_invariants=False)

    def _sampled(self, z: Tensor) -> bool:
        """Whether dot products are a sampled product: in single precision, of at most R C pairs, on the CPU."""
        return z.device.type == "cpu" and z.dtype == torch.float32 and 0 < self.count <= self.rows * self.columns

    def _sum(self, weight: Tensor, z: Tensor) -> Tensor:
        if not self.count:
            return z.new_zeros(self.rows, z.shape[1])
        if has_kernels(z) and z.dtype == torch.float32:
            from fedquilt.devices.kernels import sum_rows

            return sum_rows(self._offsets, self.target, weight.contiguous(), z)
        return torch.embedding_bag(z.contiguous(), self.target, self._offsets, False, 0, False, weight, True)[0]

    def _sum_turned(self, weight: Tensor, z: Tensor) -> Tensor:
        """sum_u weight_uv z_u at every v."""
        turned, order = self.turned
        return turned._sum(weight.index_select(0, order), z)

    def _dot(self, c: Tensor, z: Tensor) -> Tensor:
        if not self.count:
            return z.new_zeros(0)
        if self._sampled(z):
            if z.shape[1] < NARROW:  # fewer take the library twenty times as long
                c, z = (F.pad(each, (0, NARROW - each.shape[1])) for each in (c, z))
            product: Tensor = torch.sparse.sampled_addmm(self._pattern, c.contiguous(), z.contiguous().T, beta=0.0)
            return product.values()
        return pair_products(c, z, self.source, self.target, self._offsets[:-1])


class Scores:
    """c_u . z_v of every pair for one z and many c [R, d], without gradient: each result takes the place of the one before."""

    def __init__(self, links: Links, z: Tensor) -> None:
        self.links, self.z = links, z
        self._out = links._matrix(torch.empty(links.count)) if links._sampled(z) else None

    def __call__(self, c: Tensor) -> Tensor:
        """Compute all of them: [R, d] -> [E]."""
        if self._out is None:
            return self.links._dot(c, self.z)
        torch.sparse.sampled_addmm(self.links._pattern, c.contiguous(), self.z.T, beta=0.0, out=self._out)
        return self._out.values()


@dataclass(frozen=True, eq=False)
class Part:
    """The edges of some clients of a cohort: its rows and its edges in one factor, and the edges by themselves."""

    rows: slice
    span: slice
    edges: Edges


class Edges(Links, Memo):
    """The edges of a cohort's graphs (both directions, no self-loops), repeated for K factors.

    Factors are stored one after the other: row k R + r is node r in factor k, and pair k E + e is edge e in factor k. So scores
    [K E] can be viewed as [K, E] without a copy.

    Attributes:
        weight: [E] float32, the relative weights of the edges (`Client.edge_weights`), for all factors; None: all are one.
    """

    def __init__(self, cohort: Cohort, factors: int = 1) -> None:
        edges = [client.graph.edges for client in cohort.members]
        rows = np.repeat(cohort.start, [each.shape[1] for each in edges])
        weights = joined_weights(cohort.members)
        one = operators.adjacency(np.concatenate(edges, axis=1) + rows, cohort.rows, weights)
        one.sort_indices()
        self.weight = None if weights is None else torch.from_numpy(one.data).to(cohort.device)
        shift = torch.arange(factors, device=cohort.device).unsqueeze(1) * cohort.rows
        source = torch.from_numpy(np.repeat(np.arange(cohort.rows), np.diff(one.indptr))).to(cohort.device)
        target = torch.from_numpy(one.indices.astype(np.int64)).to(cohort.device)
        super().__init__((source + shift).flatten(), (target + shift).flatten(), factors * cohort.rows)
        self._ends, self._factors = np.append(cohort.start, cohort.rows), factors
        self._edge_ends = one.indptr[self._ends]
        self._parts: dict[int, list[Part]] = {}

    def parts(self, rows: int) -> list[Part]:
        """The same client by client, as many clients at a time as have up to so many rows; made once."""
        if rows not in self._parts:
            self._parts[rows] = [self._part(*ends) for ends in _groups(self._ends, rows)]
        return self._parts[rows]

    def _part(self, first: int, last: int) -> Part:
        """The edges of the clients first .. last - 1; of all of them, these."""
        if last - first == len(self._ends) - 1:
            return Part(slice(0, int(self._ends[-1])), slice(0, int(self._edge_ends[-1])), self)
        rows = slice(int(self._ends[first]), int(self._ends[last]))
        span = slice(int(self._edge_ends[first]), int(self._edge_ends[last]))
        part, count = object.__new__(Edges), rows.stop - rows.start
        shift = torch.arange(self._factors, device=self.source.device).unsqueeze(1) * count
        source, target = (side[span].long() - rows.start for side in (self.source, self.target))  # of the first factor
        Links.__init__(part, (source + shift).flatten(), (target + shift).flatten(), self._factors * count)
        part.weight = None if self.weight is None else self.weight[span]
        return Part(rows, span, part)


def _groups(ends: np.ndarray, rows: int) -> list[tuple[int, int]]:
    """Clients first .. last - 1 that have up to `rows` rows together, or one client: the ends of the rows [M + 1]."""
    out, first = [], 0
    while first < len(ends) - 1:
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + rows, side="right")) - 1)
        out.append((first, last))
        first = last
    return out


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight: Tensor, z: Tensor, links: Links) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(weight, z)
        ctx.links = links
        return links._sum(weight, z)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:  # type: ignore[no-untyped-def]
        weight, z = ctx.saved_tensors
        to_weight = ctx.links._dot(grad, z) if ctx.needs_input_grad[0] else None
        return to_weight, ctx.links._sum_turned(weight, grad), None


class _SumOnto(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight: Tensor, z: Tensor, links: Links) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(weight, z)
        ctx.links = links
        return links._sum(weight, z).add_(z)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:  # type: ignore[no-untyped-def]
        weight, z = ctx.saved_tensors
        to_weight = ctx.links._dot(grad, z) if ctx.needs_input_grad[0] else None
        return to_weight, ctx.links._sum_turned(weight, grad).add_(grad), None


class _Dot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, c: Tensor, z: Tensor, links: Links) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(c, z)
        ctx.links = links
        return links._dot(c, z)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[no-untyped-def]
        c, z = ctx.saved_tensors
        return ctx.links._sum(grad, z), ctx.links._sum_turned(grad, c), None


class _SelfDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z: Tensor, links: Links) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(z)
        ctx.links = links
        return links._dot(z, z)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        (z,) = ctx.saved_tensors
        return ctx.links._sum(grad, z).add_(ctx.links._sum_turned(grad, z)), None
