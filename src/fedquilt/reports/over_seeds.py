"""Statistics over the seeds of a run, for figures and for the charts of the HTML report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Records = Sequence[Mapping[str, Any]]
"""One seed's records, a round each."""


def values_by_round(seeds: Sequence[Records], key: str) -> tuple[np.ndarray, np.ndarray]:
    """All rounds that any seed has [R], and the values of `key` [seeds, R], NaN where a seed has none."""
    rounds = sorted({int(record["round"]) for records in seeds for record in records})
    column = {number: place for place, number in enumerate(rounds)}
    values = np.full((len(seeds), len(rounds)), np.nan)
    for row, records in enumerate(seeds):
        for record in records:
            if record.get(key) is not None:
                values[row, column[int(record["round"])]] = record[key]
    return np.array(rounds, dtype=int), values


def mean_and_std(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and population standard deviation over the first axis, NaN left out; NaN where nothing is left."""
    known = np.isfinite(values)
    count = known.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, values, 0.0).sum(0) / count
        std = np.sqrt((np.where(known, values - mean, 0.0) ** 2).sum(0) / count)
    return mean, std


def best_column(val: np.ndarray, test: np.ndarray, higher_is_better: bool = True) -> int | None:
    """The position of the best validation value, of those that also have a test value; the first of equals."""
    score = np.where(np.isfinite(test), val if higher_is_better else -val, np.nan)
    return int(np.nanargmax(score)) if np.isfinite(score).any() else None
