"""Numbers made few enough for a page: curves of at most 200 points, similarities in a thousand levels, clients in blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from fedquilt.reports.page.data import Curve, Holdings, Similarity

LEVELS = 1000
_MOST_POINTS = 200
_MOST_PLACES = 100  # rows of a heatmap
_MOST_BARS = 200
_MOST_CLASSES = 15

T = TypeVar("T")


def curve(records: Sequence[Sequence[Mapping[str, Any]]]) -> Curve:
    """The mean and the deviation over seeds of each round; of many rounds some, always with the first, last and best."""
    measured = [[row for row in rows if row.get("val") is not None or row.get("test") is not None] for rows in records]
    rounds = sorted({int(row["round"]) for rows in measured for row in rows})
    if not rounds:
        return Curve()
    val, test = (_table(measured, rounds, key) for key in ("val", "test"))
    mean_val, _ = _mean_and_deviation(val)
    mean_test, deviation = _mean_and_deviation(test)
    score = np.where(np.isfinite(mean_test), mean_val, np.nan)
    best = {int(np.nanargmax(score))} if np.isfinite(score).any() else set()
    kept = sorted(set(_some(len(rounds), _MOST_POINTS - len(best))) | best)
    return Curve(
        rounds=tuple(rounds[i] for i in kept),
        test=tuple(_percent(mean_test[i]) for i in kept),
        deviation=tuple(_percent(deviation[i]) for i in kept),
        val=tuple(_percent(mean_val[i]) for i in kept),
    )


def similarity(matrix: np.ndarray, round: int, best: bool) -> Similarity:
    """A matrix [M, M] or [K, M, M] in levels, the range of each factor's values off its diagonal parted in a thousand."""
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
    """The same with one matrix, the mean of the factors'."""
    low, high = (np.array(bound)[:, None, None] for bound in (one.low, one.high))
    values = np.where(one.levels >= 0, low + one.levels / LEVELS * (high - low), np.nan)
    mean, _ = _mean_and_deviation(values)
    found = similarity(mean, one.round, one.best)
    return Similarity(found.round, found.best, found.levels, found.low, found.high, one.block)


def holdings(cut: Mapping[str, np.ndarray] | None) -> Holdings | None:
    """Nodes and classes of the clients, from split-and-partition.npz; None where that is not there."""
    if cut is None or "sizes" not in cut:
        return None
    sizes = np.asarray(cut["sizes"], dtype=np.int64)
    block = math.ceil(len(sizes) / _MOST_BARS) if len(sizes) else 1
    starts = np.arange(0, len(sizes), block)
    whole = tuple(np.add.reduceat(sizes, starts).tolist()) if len(sizes) else ()
    counts = cut.get("class_counts")
    if counts is None or len(counts) != len(sizes) or not len(sizes):
        return Holdings(whole, block=block)
    counts = np.add.reduceat(np.asarray(counts, dtype=np.int64), starts, axis=0)
    names = [str(number) for number in range(counts.shape[1])]
    if len(names) > _MOST_CLASSES:
        largest = np.sort(np.argsort(-counts.sum(0), kind="stable")[: _MOST_CLASSES - 1])
        rest = np.setdiff1d(np.arange(len(names)), largest)
        counts = np.concatenate([counts[:, largest], counts[:, rest].sum(1, keepdims=True)], axis=1)
        names = [*(names[i] for i in largest), "others"]
    return Holdings(whole, tuple(names), tuple(map(tuple, counts.tolist())), block)


def thinned(items: Sequence[T], most: int, key: Callable[[T], float]) -> list[T]:
    """At most so many of the items: those that stand at even distances when sorted by `key`, so that the spread stays."""
    if len(items) <= most:
        return list(items)
    ranked = sorted(range(len(items)), key=lambda i: key(items[i]))
    return [items[i] for i in sorted(ranked[place] for place in _some(len(items), most))]


def _some(count: int, most: int) -> list[int]:
    """At most `most` of 0..count-1, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def _in_blocks(factors: np.ndarray) -> tuple[np.ndarray, int]:
    """[K, P, P]: means over blocks of clients in a row, where there are too many clients; and how many are in a block."""
    clients = factors.shape[-1]
    block = math.ceil(clients / _MOST_PLACES)
    if block == 1:
        return factors, 1
    starts = np.arange(0, clients, block)
    # A client beside itself would make each block look alike within.
    apart = np.isfinite(factors) & ~np.eye(clients, dtype=bool)
    sums, counts = (
        np.add.reduceat(np.add.reduceat(array, starts, axis=1), starts, axis=2)
        for array in (np.where(apart, factors, 0.0), apart.astype(float))
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / counts, block


def _table(records: Sequence[Sequence[Mapping[str, Any]]], rounds: Sequence[int], key: str) -> np.ndarray:
    """[seeds, rounds], NaN where a seed has no value."""
    place = {number: column for column, number in enumerate(rounds)}
    values = np.full((len(records), len(rounds)), np.nan)
    for row, rows in enumerate(records):
        for record in rows:
            if record.get(key) is not None:
                values[row, place[int(record["round"])]] = record[key]
    return values


def _mean_and_deviation(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Over the first axis, without NaN; NaN where nothing is left."""
    seen = np.isfinite(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(seen, values, 0.0).sum(0) / seen.sum(0)
        spread = np.sqrt((np.where(seen, values - mean, 0.0) ** 2).sum(0) / seen.sum(0))
    return mean, spread


def _percent(value: float) -> float | None:
    return round(float(value), 2) if math.isfinite(value) else None
