"""Bring the features of a user's own graph to one scale: a transformation of its columns, from features alone.

    standard   z = (x - centre) / scale for each column, then clipped softly: beyond 3 it grows like a logarithm. A column of
               zeros and ones stays as it is, a constant one becomes zero. Sparse features are not centred, and stay sparse.
    rows       each node's features are divided by the sum of their absolute values, as counts of words are.
    none       as they are.

`centre` and `scale` are mean and standard deviation of the column's values, clipped to their quantiles of 5 and 95 percent, so
that neither outliers nor a heavy tail decide them. Labels and the split are not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from fedquilt.errors import FedquiltError
from fedquilt.graphs.arrays import Features
from fedquilt.graphs.column_sums import ColumnSums, row_blocks

PrepareKind = Literal["none", "standard", "rows"]
KINDS: tuple[PrepareKind, ...] = ("none", "standard", "rows")
LINEAR = 3.0  # up to so many deviations a standardised value is as it is; beyond, it grows like a logarithm
_ROUNDING = 2.0**-20  # a deviation of less than this share of the mean is the rounding of a constant
_DIVIDED = 1e-5  # a row whose sum is so close to one was divided before
_WIDE, _ZEROS = 64, 0.85  # counts have many columns, and most of what they count is zero


@dataclass(frozen=True, eq=False)
class Preparation:
    """A transformation of features, as one client applies it.

    Attributes:
        kind: "none", "standard" or "rows".
        centre, scale: [F] float64, for "standard": z = (x - centre) / scale. A column that stays as it is has 0 and 1; a
            constant one has scale 0, and becomes zero.
    """

    kind: PrepareKind = "none"
    centre: np.ndarray | None = None
    scale: np.ndarray | None = None

    @classmethod
    def of(cls, x: Features, kind: PrepareKind) -> Preparation:
        """The transformation by the statistics of x itself, [n, F]: what a client does by its own."""
        return cls.of_sums(ColumnSums.of(x)) if kind == "standard" else cls(kind)

    @classmethod
    def of_sums(cls, sums: ColumnSums) -> Preparation:
        """The transformation by sums over the nodes of one client, or of several."""
        centre, scale = sums.mean_and_deviation()
        scale = np.where(scale <= _ROUNDING * np.abs(centre), 0.0, scale)
        binary = sums.other == 0
        return cls("standard", np.where(binary, 0.0, centre), np.where(binary, 1.0, scale))

    @property
    def kept(self) -> np.ndarray:
        """[F] bool: the columns that stay as they are."""
        assert self.centre is not None
        assert self.scale is not None
        return (self.centre == 0) & (self.scale == 1)

    @property
    def constant(self) -> np.ndarray:
        """[F] bool: the columns that have one value and become zero."""
        assert self.scale is not None
        return self.scale == 0

    def apply(self, x: Features) -> Features:
        """Features [n, F] float32 as a model takes them; x itself does not change."""
        if self.kind == "none":
            return x
        if self.kind == "rows":
            return divided_rows(x)
        assert self.centre is not None
        assert self.scale is not None
        if x.shape[1] != self.centre.size:
            raise FedquiltError(
                f"The features are {x.shape[1]}, and were prepared as {self.centre.size}; give the same."
            )
        factor = np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=self.scale != 0)
        if not isinstance(x, np.ndarray):
            values = _softly_clipped(x.data * factor[x.indices])
            return sp.csr_matrix((values.astype(np.float32), x.indices, x.indptr), shape=x.shape)
        out = np.empty(x.shape, dtype=np.float32)
        for rows in row_blocks(x):
            out[rows] = _softly_clipped((x[rows] - self.centre) * factor)
        return out

    def facts(self) -> dict[str, Any]:
        """In JSON's types; `restored` reads it."""
        if self.centre is None or self.scale is None:
            return {"kind": self.kind}
        return {"kind": self.kind, "centre": self.centre.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def restored(cls, facts: Mapping[str, Any] | None, features: int) -> Preparation:
        """What `facts` gave; None is from before there were preparations. ValueError where it is none of so many features."""
        if facts is None:
            return cls()
        if facts.get("kind") not in KINDS:
            raise ValueError("there is no such preparation")
        if facts["kind"] != "standard":
            return cls(facts["kind"])
        centre, scale = (np.asarray(facts.get(name), dtype=np.float64) for name in ("centre", "scale"))
        sound = all(part.shape == (features,) and np.isfinite(part).all() for part in (centre, scale))
        if not sound or (scale < 0).any():
            raise ValueError("the preparation is not one of these features")
        return cls("standard", centre, scale)


def notice(preparations: Sequence[Preparation], statistics: str) -> str:
    """What is done to features, as a sentence for their owner; `statistics` are each client's "own" or "shared"."""
    leave = "--prepare none leaves them as they are"
    first = preparations[0]
    if first.kind == "rows":
        return f"Each node's features are divided by their sum, as counts are; {leave}."
    kept, constant = (np.all([getattr(how, name) for how in preparations], axis=0) for name in ("kept", "constant"))
    several = f", {kept.sum()} of zeros and ones stay" if kept.any() else ""
    several += f", {constant.sum()} constant ones become zero" if constant.any() else ""
    whose = "each client's own statistics" if statistics == "own" else "shared statistics"
    numbers = kept.size - int(kept.sum()) - int(constant.sum())
    return f"Features are standardised by {whose}: {numbers} columns{several}; {leave}."


def suggested_kind(x: Features) -> PrepareKind:
    """How features are prepared unless the user says: "rows" for counts, else "standard".

    Counts are stored sparse; or they are dense, none is negative, there are many columns, and most values are zero.
    """
    if sp.issparse(x):
        return "rows"
    if x.shape[1] < _WIDE:
        return "standard"
    zeros, negative = 0, False
    for rows in row_blocks(x):
        zeros += int(np.count_nonzero(x[rows] == 0))
        negative = negative or bool((x[rows] < 0).any())
    return "rows" if not negative and zeros >= _ZEROS * x.size else "standard"


def agreed_kind(suggested: Sequence[tuple[str, PrepareKind]]) -> PrepareKind:
    """What several clients agree on, each with what errors call it and what it wants or suggests.

    Where some have counts and others have numbers, all are standardised.
    """
    kinds = dict.fromkeys(kind for _, kind in suggested)
    if len(kinds) == 1:
        return next(iter(kinds))
    if "none" in kinds:
        first, other = (next(each for each in suggested if (each[1] == "none") is none) for none in (True, False))
        raise FedquiltError(
            f"{first[0]} says prepare: none for its features and {other[0][0].lower()}{other[0][1:]} {other[1]}; say for all "
            "which it is, with the run's prepare."
        )
    return "standard"


def divided_rows(x: Features) -> Features:
    """Divide each row by the sum of its absolute values; rows of zeros, and rows that were divided before, stay."""
    sums = np.asarray(abs(x).sum(axis=1, dtype=np.float64)).reshape(-1)
    factor = np.divide(1.0, sums, out=np.ones_like(sums), where=(sums > 0) & (np.abs(sums - 1) > _DIVIDED))
    if isinstance(x, np.ndarray):
        return (x * factor[:, None]).astype(np.float32)
    values = x.data * np.repeat(factor, np.diff(x.indptr))
    return sp.csr_matrix((values.astype(np.float32), x.indices, x.indptr), shape=x.shape)


def _softly_clipped(z: np.ndarray) -> np.ndarray:
    """z up to LINEAR, beyond sign(z) (LINEAR + log(1 + |z| - LINEAR)): as steep where they meet, and it never folds."""
    size = np.abs(z)
    over = size > LINEAR
    if over.any():
        z[over] = np.sign(z[over]) * (LINEAR + np.log1p(size[over] - LINEAR))
    return z
