"""Reduce a run to what a page can hold: at most 200 points a curve, similarities in 1000 levels, clients in blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from fedquilt.reports.over_seeds import Records, best_column, mean_and_std, values_by_round
from fedquilt.reports.page.data import Curve, Holdings, Similarity, ViewShares
from fedquilt.reports.views import ViewWeights

LEVELS = 1000
_MAX_POINTS = 200
_MAX_ROWS = 100  # rows of a heatmap
_MAX_BARS = 200
_MAX_CLASSES = 15

T = TypeVar("T")


def curve(seeds: Sequence[Records], higher_is_better: bool = True) -> Curve:
    """The mean and the deviation over seeds, round by round; of many rounds a part, with the first, last and best."""
    evaluated = [[r for r in records if r.get("val") is not None or r.get("test") is not None] for records in seeds]
    rounds, val = values_by_round(evaluated, "val")
    if not len(rounds):
        return Curve()
    mean_val, _ = mean_and_std(val)
    mean_test, deviation = mean_and_std(values_by_round(evaluated, "test")[1])
    best = best_column(mean_val, mean_test, higher_is_better)
    always = set() if best is None else {best}
    kept = sorted(set(_spread(len(rounds), _MAX_POINTS - len(always))) | always)
    return Curve(
        rounds=tuple(rounds[kept].tolist()),
        test=tuple(_rounded(mean_test[i]) for i in kept),
        deviation=tuple(_rounded(deviation[i]) for i in kept),
        val=tuple(_rounded(mean_val[i]) for i in kept),
        best=None if best is None else kept.index(best),
    )


def similarity(matrix: np.ndarray, round: int, best: bool) -> Similarity:
    """A matrix [M, M] or [K, M, M] in integer levels: 0 to 1000 span each factor's values off its diagonal."""
    factors = matrix[None] if matrix.ndim == 2 else matrix
    factors, block = _in_blocks(factors)
    apart = ~np.eye(factors.shape[-1], dtype=bool)
    levels = np.full(factors.shape, -1, dtype=np.int16)
    low, high = [], []
    for place, square in enumerate(factors):
        known = np.isfinite(square)
        others = square[known & apart] if (known & apart).any() else square[known]
        bottom, top = (float(others.min()), float(others.max())) if others.size else (0.0, 1.0)
        scale = LEVELS / (top - bottom) if top > bottom else 0.0
        scaled = np.clip(np.rint((square[known] - bottom) * scale), 0, LEVELS)
        levels[place][known] = scaled.astype(np.int16)
        low.append(float(f"{bottom:.5g}"))
        high.append(float(f"{top:.5g}"))
    return Similarity(round, best, levels, tuple(low), tuple(high), block)


def mean_over_factors(one: Similarity) -> Similarity:
    """The same similarity with one matrix: the mean over factors."""
    low, high = (np.array(bound)[:, None, None] for bound in (one.low, one.high))
    values = np.where(one.levels >= 0, low + one.levels / LEVELS * (high - low), np.nan)
    mean, _ = mean_and_std(values)
    found = similarity(mean, one.round, one.best)
    return Similarity(found.round, found.best, found.levels, found.low, found.high, one.block)


def holdings(
    cut: Mapping[str, np.ndarray] | None,
    names_of_clients: tuple[str, ...] = (),
    class_names: Sequence[str] | None = None,
) -> Holdings | None:
    """Nodes and classes of each client, from the arrays of split-and-partition.npz; None where there are none.

    Classes have their names where these are given and fit.
    """
    if cut is None or "sizes" not in cut:
        return None
    sizes = np.asarray(cut["sizes"], dtype=np.int64)
    block = math.ceil(len(sizes) / _MAX_BARS) if len(sizes) else 1
    starts = np.arange(0, len(sizes), block)
    called = names_of_clients if len(names_of_clients) == len(sizes) and block == 1 else ()
    whole = tuple(np.add.reduceat(sizes, starts).tolist()) if len(sizes) else ()
    counts = cut.get("class_counts")
    if counts is None or len(counts) != len(sizes) or not len(sizes):
        return Holdings(whole, block=block, names=called)
    counts = np.add.reduceat(np.asarray(counts, dtype=np.int64), starts, axis=0)
    fit = class_names is not None and len(class_names) == counts.shape[1]
    names = list(class_names or ()) if fit else [str(number) for number in range(counts.shape[1])]
    if len(names) > _MAX_CLASSES:
        largest = np.sort(np.argsort(-counts.sum(0), kind="stable")[: _MAX_CLASSES - 1])
        rest = np.setdiff1d(np.arange(len(names)), largest)
        counts = np.concatenate([counts[:, largest], counts[:, rest].sum(1, keepdims=True)], axis=1)
        names = [*(names[i] for i in largest), "others"]
    return Holdings(whole, tuple(names), tuple(map(tuple, counts.tolist())), block, called)


def view_shares(found: ViewWeights) -> ViewShares:
    """The weights of views in thousandths: of many rounds a part, of many clients means over blocks of them."""
    block = math.ceil(len(found.clients) / _MAX_BARS)
    blocks = [found.clients[start : start + block] for start in range(0, len(found.clients), block)]
    means = [mean_and_std(np.where(np.isfinite(some).all(1, keepdims=True), some, np.nan))[0] for some in blocks]
    kept = _spread(len(found.rounds), _MAX_POINTS)
    return ViewShares(
        names=found.names,
        clients=tuple(_shares(mean) if np.isfinite(mean).all() else None for mean in means),
        block=block,
        rounds=tuple(found.rounds[kept].tolist()),
        by_round=tuple(map(_shares, found.by_round[kept])),
        last=found.last,
    )


def thinned(items: Sequence[T], most: int, key: Callable[[T], float]) -> list[T]:
    """At most `most` items, at even distances in the order of `key`, so that the spread is kept."""
    if len(items) <= most:
        return list(items)
    ranked = sorted(range(len(items)), key=lambda i: key(items[i]))
    return [items[i] for i in sorted(ranked[place] for place in _spread(len(items), most))]


def _spread(count: int, most: int) -> list[int]:
    """At most `most` numbers of 0..count-1 at even distances, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def _in_blocks(factors: np.ndarray) -> tuple[np.ndarray, int]:
    """Means over blocks of clients in a row where there are too many clients, [K, P, P], and the clients in a block."""
    clients = factors.shape[-1]
    block = math.ceil(clients / _MAX_ROWS)
    if block == 1:
        return factors, 1
    starts = np.arange(0, clients, block)
    # Without the diagonal: each client is most similar to itself, which would raise the blocks on the diagonal.
    apart = np.isfinite(factors) & ~np.eye(clients, dtype=bool)
    sums, counts = (
        np.add.reduceat(np.add.reduceat(array, starts, axis=1), starts, axis=2)
        for array in (np.where(apart, factors, 0.0), apart.astype(float))
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / counts, block


def _shares(weights: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(weight), 3) for weight in weights)


def _rounded(value: float) -> float | None:
    return round(float(value), 2) if math.isfinite(value) else None
