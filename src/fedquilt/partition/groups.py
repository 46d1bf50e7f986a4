"""Group nodes by their labels."""

from __future__ import annotations

import numpy as np


def groups(labels: np.ndarray, count: int) -> list[np.ndarray]:
    """Return for each label 0..count-1 the sorted indices of the nodes that have it."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(labels, minlength=count))[:-1])
