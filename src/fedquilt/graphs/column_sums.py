"""Sums over a client's nodes of each feature's clipped values: mean and deviation follow from them, and clients' add up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import scipy.sparse as sp

from fedquilt.graphs.arrays import Features

TAIL = 0.05  # share of a column's values that is clipped on each side
_BLOCK = 1 << 21  # numbers that are worked on at once


@dataclass(frozen=True, eq=False)
class ColumnSums:
    """Sums of each column of features, [F] float64 each.

    Of sparse features only what is stored counts, and `total` is zero: their deviation is the one around zero.

    Attributes:
        count: how many values.
        total, squares: the sum of the clipped values, and of their squares.
        other: how many values are neither zero nor one.
    """

    count: np.ndarray
    total: np.ndarray
    squares: np.ndarray
    other: np.ndarray

    @classmethod
    def of(cls, x: Features) -> ColumnSums:
        """The sums of one client's features, [n, F]."""
        if sp.issparse(x):
            return cls._of_sparse(x)
        nodes, width = x.shape
        found = np.zeros((3, width))
        step = max(_BLOCK // max(nodes, 1), 1)
        for first in range(0, width if nodes else 0, step):
            block = x[:, first : first + step].astype(np.float64)
            clipped, binary = _clipped(block), (block == 0) | (block == 1)
            found[:, first : first + step] = clipped.sum(0), (clipped**2).sum(0), (~binary).sum(0)
        return cls(np.full(width, float(nodes)), *found)

    @classmethod
    def _of_sparse(cls, x: sp.csr_matrix) -> ColumnSums:
        columns, width = x.tocsc(), x.shape[1]
        count, squares, other = np.zeros((3, width))
        for column in np.flatnonzero(np.diff(columns.indptr)):
            values = columns.data[columns.indptr[column] : columns.indptr[column + 1]].astype(np.float64)
            values = values[values != 0]
            if values.size:
                count[column], other[column] = values.size, np.count_nonzero(values != 1)
                squares[column] = (_clipped(values[:, None]) ** 2).sum()
        return cls(count, np.zeros(width), squares, other)

    @classmethod
    def added(cls, parts: Sequence[ColumnSums]) -> ColumnSums:
        """The sums over several clients."""
        return cls(*(np.sum([getattr(part, one.name) for part in parts], axis=0) for one in fields(cls)))

    def mean_and_deviation(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the clipped values, [F] each; zeros where there are none."""
        count = np.maximum(self.count, 1)
        mean = self.total / count
        # Features have 24 bits, so that 53 are enough for the difference of two squares; see `fedquilt.graphs.preparation`.
        return mean, np.sqrt(np.maximum(self.squares / count - mean**2, 0))


def row_blocks(x: np.ndarray) -> Iterator[slice]:
    """Slices of rows, each with a few million numbers."""
    step = max(_BLOCK // max(x.shape[1], 1), 1)
    return (slice(first, first + step) for first in range(0, x.shape[0], step))


def _clipped(block: np.ndarray) -> np.ndarray:
    """Columns [n, B] clipped to their quantiles of TAIL and 1 - TAIL.

    A column nearly all of whose values are equal, such as one that is mostly zero, would be constant then. It is clipped to
    twice the median distance of the other values from that one.
    """
    low, high = _quantiles(block)
    for column in np.flatnonzero(low == high):
        apart = np.abs(block[:, column] - low[column])
        apart = apart[apart > 0]
        if apart.size:
            reach = 2 * np.median(apart)
            low[column], high[column] = low[column] - reach, high[column] + reach
    return np.clip(block, low, high)


def _quantiles(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The quantiles of TAIL and 1 - TAIL of each column, each one of its values: [n, B] -> [B]. Up to 20 have none beyond."""
    last = block.shape[0] - 1
    beyond = int(TAIL * last)
    parted = np.partition(block, (beyond, last - beyond), axis=0)
    return parted[beyond].copy(), parted[last - beyond].copy()
