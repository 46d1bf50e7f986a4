"""The layout of clients' rows in one tensor, and products of rows with each client's own weights.

When the clients have similarly many rows, every client gets the same number (the last ones empty), so that
``h.view(M, L, H)`` is free and the product with all clients' weights is one batched product; when they do not, rows are
compact and products go client by client.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

# Rows wasted on padding, as a share of the real ones, up to which one batched product beats a product per client.
PADDING_LIMIT = 0.3


class Rows:
    """R rows that belong to M clients.

    Attributes:
        sizes: the number of rows of each client, padding not counted.
        length: rows a client when padded to equal numbers, else None. spans: rows a client, padding counted.
        start: [M] first row of each client. rows: R, all rows.
        client: [R] int64, whose row it is. position: [R] int64, its place within the client.
    """

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
    def clients(self) -> int:
        """M, the number of clients."""
        return len(self.sizes)

    @cached_property
    def taken(self) -> np.ndarray:
        """The rows that are no padding, in rising order: [n_1 + .. + n_M] int64."""
        before = np.cumsum(self.sizes) - self.sizes
        return np.repeat(self.start - before, self.sizes) + np.arange(sum(self.sizes))

    def rows_of(self, parts: Sequence[Tensor], fill: float) -> Tensor:
        """Per-client tensors [n_m, ...] laid into rows [R, ...], `fill` where a row is padding."""
        return self.laid(parts, fill).to(self.device)

    def laid(self, parts: Sequence[Tensor], fill: float) -> Tensor:
        """The same where the parts are, instead of on this cohort's device."""
        if not self.length:
            return torch.cat(list(parts))
        return pad_sequence(list(parts), batch_first=True, padding_value=fill).flatten(0, 1)

    def parts_of(self, rows: Tensor) -> list[Tensor]:
        """The inverse of `rows_of`: [R, ...] -> a tensor [n_m, ...] a client."""
        return [rows[first : first + n] for first, n in zip(self.start, self.sizes, strict=True)]

    def diagonal(self, blocks: Sequence[sp.csr_matrix], offsets: Sequence[int], columns: int) -> sp.csr_matrix:
        """Blocks [n_m, ...] in their clients' rows of one matrix [R, columns], block m from column offsets[m] on."""
        indices = np.concatenate([block.indices for block in blocks]).astype(np.int64)
        indices += np.repeat(np.asarray(offsets, dtype=np.int64), [block.indices.size for block in blocks])
        lengths = np.concatenate([np.diff(block.indptr) for block in blocks])
        return self.padded(np.concatenate([block.data for block in blocks]), indices, lengths, columns)

    def padded(self, data: np.ndarray, indices: np.ndarray, lengths: np.ndarray, columns: int) -> sp.csr_matrix:
        """The matrix [R, columns] whose rows that are no padding have so many entries each, which follow one another."""
        counts = np.zeros(self.rows, dtype=np.int64)
        counts[self.taken] = lengths
        return sp.csr_matrix((data, indices, np.concatenate([[0], np.cumsum(counts)])), shape=(self.rows, columns))

    def stack(self, rows: sp.csr_matrix) -> sp.csr_matrix:
        """Clients' rows side by side: [R, K] -> [R, M K], those of client m in columns m K .. m K + K - 1."""
        width = rows.shape[1]
        lengths = np.diff(rows.indptr)
        shift = width * np.repeat(np.arange(self.clients), self.spans)
        columns = rows.indices + np.repeat(shift, lengths)
        return sp.csr_matrix((rows.data, columns, rows.indptr), shape=(self.rows, width * self.clients))

    def multiply(self, h: Tensor, weight: Tensor) -> Tensor:
        """h_m W_m for every client: h [R, K], weight [M, K, H] -> [R, H]."""
        if self.length is not None:
            return torch.bmm(h.view(self.clients, self.length, h.shape[1]), weight).view(self.rows, weight.shape[2])
        return torch.cat([part @ w for part, w in zip(h.split(self.spans), weight, strict=True)])

    def add(self, h: Tensor, bias: Tensor) -> Tensor:
        """h_m + b_m for every client: h [R, H], bias [M, H] -> [R, H]."""
        if self.length is not None:
            return (h.view(self.clients, self.length, h.shape[1]) + bias.unsqueeze(1)).view(h.shape)
        return h + bias[self.client]

    def scale(self, h: Tensor, factor: Tensor) -> Tensor:
        """h_m times f_m, unit by unit, for every client: h [R, H], factor [M, H] -> [R, H]."""
        if self.length is not None:
            return (h.view(self.clients, self.length, h.shape[1]) * factor.unsqueeze(1)).view(h.shape)
        return h * factor[self.client]
