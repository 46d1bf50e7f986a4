"""Figures of the columns of features: range, deviation, outliers, skew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedquilt.common.printable import printable, shortened
from fedquilt.graphs.arrays import Features

_BLOCK = 256  # columns that are looked at together


@dataclass(frozen=True, eq=False)
class ColumnFigures:
    """Figures of F features over all nodes: [F] each.

    Attributes:
        low, high: the least and the largest value.
        deviation: the standard deviation of the values, clipped to their quantiles of 5 and 95 percent.
        far: how many of these deviations the farthest value is from the clipped mean; 0 where they are 0.
        skew: the third moment of the standardised values.
        binary: whether all values are 0 or 1.
    """

    low: np.ndarray
    high: np.ndarray
    deviation: np.ndarray
    far: np.ndarray
    skew: np.ndarray
    binary: np.ndarray

    @property
    def constant(self) -> np.ndarray:
        """[F] bool: whether all nodes have one value."""
        return self.low == self.high

    def rows(self, names: Sequence[str] | None, most: int = 20) -> list[tuple[str, ...]]:
        """(name, least, largest, deviation, skew) of the columns that are not 0 and 1 only, the widest first, as text."""
        plain = np.flatnonzero(~self.binary)
        shown = plain[np.argsort(-self.deviation[plain], kind="stable")][:most]
        return [
            (
                f"column {at + 1}" if names is None else printable(shortened(names[at], 60)),
                *(f"{part[at]:.4g}" for part in (self.low, self.high, self.deviation)),
                f"{self.skew[at]:.1f}",
            )
            for at in shown.tolist()
        ]


def column_figures(x: Features) -> ColumnFigures:
    """The figures of features [N, F], some columns at a time, so that they take little memory."""
    parts = []
    columns = sp.csc_matrix(x) if sp.issparse(x) else x
    for start in range(0, x.shape[1], _BLOCK):
        part: Any = columns[:, start : start + _BLOCK]
        block = (part.toarray() if sp.issparse(part) else part).astype(np.float64)
        low, high = np.quantile(block, (0.05, 0.95), axis=0)
        clipped = np.clip(block, low, high)
        centre, deviation = clipped.mean(axis=0), clipped.std(axis=0)
        spread = block.std(axis=0)
        least, most = block.min(axis=0), block.max(axis=0)
        # A deviation of a few units in the last place is the rounding of a constant.
        real = spread > 1e-6 * np.abs(centre)
        over = np.maximum(most - centre, centre - least)
        far = np.divide(over, deviation, out=np.zeros_like(over), where=real & (deviation > 1e-6 * spread))
        third = ((block - block.mean(axis=0)) ** 3).mean(axis=0)
        skew = np.divide(third, spread**3, out=np.zeros_like(third), where=real)
        binary = ((block == 0) | (block == 1)).all(axis=0)
        parts.append((least, most, deviation, far, skew, binary))
    return ColumnFigures(*(np.concatenate(part) for part in zip(*parts, strict=True)))
