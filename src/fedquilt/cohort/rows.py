"""The layout of clients' rows in one tensor, and products of rows with each client's own weights.

If the clients have similar numbers of rows, all are padded to the same number L. Then ``h.view(M, L, H)`` needs no copy, and
the product with all clients' weights is one batched product. Otherwise there is no padding, and products are computed client
by client.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

# A product with fewer columns than this takes the library several times as long on a CPU, unless they lie side by side. Sums of
# fewer than so many products are short anyway, and stay as they are: then equal rows of h give equal rows to the last bit.
NARROW, LONG = 16, 128
# Up to this ratio of padding to real rows, one batched product is faster than one product per client.
PADDING_LIMIT = 0.3


class Rows:
    """R rows that belong to M clients.

    Attributes:
        sizes: the number of rows of each client, padding not counted.
        length: L, the number of rows of every client if they are padded to equal numbers, else None.
        spans: the number of rows of each client, padding counted.
        start: [M] first row of each client. rows: R, the number of all rows.
        client: [R] int64, the client of each row. position: [R] int64, its position within the client.
        fleeting: whether they are used for one step only, so that nothing is worth computing ahead.
    """

    fleeting: ClassVar[bool] = False

    def __init__(self, sizes: Sequence[int], device: torch.device, padding: float = PADDING_LIMIT) -> None:
        self.device = device
        self.sizes = list(sizes)
        longest, total = max(self.sizes), sum(self.sizes)
        self.length = longest if longest * len(self.sizes) <= (1.0 + padding) * total else None
        self.spans = [longest] * len(self.sizes) if self.length else self.sizes
        self.start = np.concatenate([[0], np.cumsum(self.spans)[:-1]]).astype(np.int64)
        self.rows = int(sum(self.spans))
        repeats = torch.tensor(self.spans)
        self.client = torch.repeat_interleave(torch.arange(self.clients), repeats).to(device)
        place = torch.arange(self.rows) - torch.repeat_interleave(torch.from_numpy(self.start), repeats)
        self.position = place.to(device)

    @property
    def equal_length(self) -> int | None:
        """`length` where moreover the positions of every client's rows are 0, 1, 2, ...; else None."""
        return self.length

    @property
    def clients(self) -> int:
        """M, the number of clients."""
        return len(self.sizes)

    @cached_property
    def taken(self) -> np.ndarray:
        """The rows that are not padding, in rising order: [n_1 + .. + n_M] int64."""
        before = np.cumsum(self.sizes) - self.sizes
        return np.repeat(self.start - before, self.sizes) + np.arange(sum(self.sizes))

    def rows_of(self, parts: Sequence[Tensor], fill: float) -> Tensor:
        """Place per-client tensors [n_m, ...] in rows [R, ...] on this cohort's device; padding gets the value `fill`."""
        return self.laid(parts, fill).to(self.device)

    def laid(self, parts: Sequence[Tensor], fill: float) -> Tensor:
        """Do the same as `rows_of`, but leave the result on the device of the parts."""
        if not self.length:
            return torch.cat(list(parts))
        return pad_sequence(list(parts), batch_first=True, padding_value=fill).flatten(0, 1)

    def parts_of(self, rows: Tensor) -> list[Tensor]:
        """Invert `rows_of`: [R, ...] -> a tensor [n_m, ...] for each client."""
        return [rows[first : first + n] for first, n in zip(self.start, self.sizes, strict=True)]

    def diagonal(self, blocks: Sequence[sp.csr_matrix], offsets: Sequence[int], columns: int) -> sp.csr_matrix:
        """Place blocks [n_m, ...] in one matrix [R, columns]: block m in the rows of client m, from column offsets[m] on."""
        indices = np.concatenate([block.indices for block in blocks]).astype(np.int64)
        indices += np.repeat(np.asarray(offsets, dtype=np.int64), [block.indices.size for block in blocks])
        lengths = np.concatenate([np.diff(block.indptr) for block in blocks])
        return self.padded(np.concatenate([block.data for block in blocks]), indices, lengths, columns)

    def padded(self, data: np.ndarray, indices: np.ndarray, lengths: np.ndarray, columns: int) -> sp.csr_matrix:
        """Build a CSR matrix [R, columns] from the entries of all rows but padding; `lengths` are the entries of each row."""
        counts = np.zeros(self.rows, dtype=np.int64)
        counts[self.taken] = lengths
        return sp.csr_matrix((data, indices, np.concatenate([[0], np.cumsum(counts)])), shape=(self.rows, columns))

    def stack(self, rows: sp.csr_matrix) -> sp.csr_matrix:
        """Move the rows of client m to columns m K .. m K + K - 1 of a wider matrix: [R, K] -> [R, M K]."""
        width = rows.shape[1]
        lengths = np.diff(rows.indptr)
        shift = width * np.repeat(np.arange(self.clients), self.spans)
        columns = rows.indices + np.repeat(shift, lengths)
        return sp.csr_matrix((rows.data, columns, rows.indptr), shape=(self.rows, width * self.clients))

    def multiply(self, h: Tensor, weight: Tensor) -> Tensor:
        """Compute h_m W_m for every client: h [R, K], weight [M, K, H] -> [R, H]."""
        if self.length is not None:
            return batched(h.view(self.clients, self.length, h.shape[1]), weight).view(self.rows, weight.shape[2])
        parts = zip(h.split(self.spans), weight.split(1), strict=True)
        return torch.cat([batched(part.unsqueeze(0), w).squeeze(0) for part, w in parts])

    def affine(self, h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Compute h_m W_m + b_m for every client in one pass: h [R, K], weight [M, K, H], bias [M, H] -> [R, H]."""
        if self.length is None:
            return self.add(self.multiply(h, weight), bias)
        h = h.view(self.clients, self.length, h.shape[1])
        return torch.baddbmm(bias.unsqueeze(1), h, weight).view(self.rows, weight.shape[2])

    def multiply_add(self, total: Tensor, h: Tensor, weight: Tensor) -> Tensor:
        """Compute t_m + h_m W_m for every client in one pass: total [R, H], h [R, K], weight [M, K, H] -> [R, H]."""
        if self.length is None:
            return total + self.multiply(h, weight)
        total, h = (each.view(self.clients, self.length, each.shape[1]) for each in (total, h))
        return torch.baddbmm(total, h, weight).view(self.rows, weight.shape[2])

    def add(self, h: Tensor, bias: Tensor) -> Tensor:
        """Compute h_m + b_m for every client: h [R, H], bias [M, H] -> [R, H]."""
        if self.length is not None:
            return (h.view(self.clients, self.length, h.shape[1]) + bias.unsqueeze(1)).view(h.shape)
        return h + bias[self.client]

    def scale(self, h: Tensor, factor: Tensor) -> Tensor:
        """Multiply h_m by f_m column by column, for every client: h [R, H], factor [M, H] -> [R, H]."""
        if self.length is not None:
            return (h.view(self.clients, self.length, h.shape[1]) * factor.unsqueeze(1)).view(h.shape)
        return h * factor[self.client]


def batched(h: Tensor, weight: Tensor) -> Tensor:
    """Compute the product of every pair of matrices: [B, n, K], [B, K, H] -> [B, n, H]."""
    if h.device.type != "cpu" or weight.shape[2] >= NARROW or h.shape[1] < NARROW or weight.shape[1] < LONG:
        return torch.bmm(h, weight)
    product: Tensor = _NarrowProduct.apply(h, weight)
    return product


class _NarrowProduct(torch.autograd.Function):
    """A product with few columns: their weights lie side by side, and the gradient of the weights is computed transposed."""

    @staticmethod
    def forward(ctx, h: Tensor, weight: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(h, weight)
        return torch.bmm(h, weight.mT.contiguous().mT)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:  # type: ignore[no-untyped-def]
        h, weight = ctx.saved_tensors
        to_h = torch.bmm(grad, weight.mT) if ctx.needs_input_grad[0] else None
        return to_h, torch.bmm(grad.mT, h).mT.contiguous() if ctx.needs_input_grad[1] else None
