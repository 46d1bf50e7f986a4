"""Labels that are numbers, such as a price or a length of stay: how they are stored in a graph beside classes.

A graph whose labels are numbers has them in `Graph.numbers`, [N] float64 with NaN where a node has none. Its `y` then only says
which nodes have a label: 0 where there is one, -1 elsewhere, and it has one class. What asks whether a node has one, such as
a split, reads `y` and need not know the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.graphs.arrays import shape_text
from fedquilt.graphs.validate import LARGEST_FEATURE, MOST_CLASSES


def as_numbers(y: Any) -> np.ndarray | None:
    """[N] float64 where labels of a floating type cannot be classes: one is a fraction, below -1 or too large; else None.

    Whole numbers from -1 up stay classes, of which -1 means unlabelled, as they always were.
    """
    array = np.asarray(y)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.floating):
        return None
    known = array[~np.isnan(array)]
    classes = np.isfinite(known).all() and ((known == np.round(known)) & (known >= -1) & (known < MOST_CLASSES)).all()
    return None if classes else array.astype(np.float64)


def presence(numbers: np.ndarray) -> np.ndarray:
    """[N] int64: the `y` of a graph whose labels are these numbers: 0 where there is one, -1 where it is NaN."""
    return np.where(np.isnan(numbers), -1, 0).astype(np.int64)


def check_numbers(numbers: np.ndarray, y: np.ndarray, classes: int, where: str) -> None:
    """Check that there is a finite number, or NaN, for each node, and that `y` says which."""
    if numbers.shape != y.shape or numbers.dtype.kind != "f":
        raise FedquiltError(
            f"{where} has numbers of shape {shape_text(numbers)} and type {numbers.dtype} for {y.size} nodes; give one number "
            "for each node, NaN where it has no label."
        )
    known = numbers[~np.isnan(numbers)]
    if not (np.abs(known) <= LARGEST_FEATURE).all():
        raise FedquiltError(
            f"{where} has a label that is infinite or beyond {LARGEST_FEATURE:g}; give it in other units, or leave it empty."
        )
    if classes != 1 or not np.array_equal(presence(numbers), y):
        raise FedquiltError(f"{where} has both classes and numbers as labels; give one of them.")


def numbers_in_words(numbers: np.ndarray) -> str:
    """The range of labels, such as "numbers from 0.5 to 12, mean 3.1"; NaN is no label."""
    known = numbers[~np.isnan(numbers)]
    if not known.size:
        return "numbers, none known"
    return f"numbers from {known.min():.6g} to {known.max():.6g}, mean {known.mean():.6g}"


def numeric_labels(y: np.ndarray, numbers: np.ndarray | None) -> np.ndarray:
    """[N] float64: a graph's labels as numbers; classes are their numbers. NaN means unlabelled."""
    return np.where(y < 0, np.nan, y.astype(np.float64)) if numbers is None else numbers


def joined_numbers(labels: Sequence[tuple[np.ndarray, np.ndarray | None]]) -> np.ndarray | None:
    """The labels of several graphs, given as their `y` and `numbers`, one after the other; None: all have classes.

    Where one graph's labels are numbers, classes of another that have no names are its numbers.
    """
    if all(numbers is None for _, numbers in labels):
        return None
    return np.concatenate([numeric_labels(y, numbers) for y, numbers in labels])
