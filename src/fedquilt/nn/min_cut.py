"""The minimum cut of a weighted complete graph: the two groups between which the sum of similarities is smallest.

Stoer and Wagner's algorithm, as networkx has it. Its heap is in Python: 0.6 s at a hundred vertices, 6 s at two hundred. Larger
graphs are cut by the same algorithm over a matrix, without a heap: 6 s at a thousand. (igraph's is in C, but ends the process
on graphs with weights of zero.)
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

LARGE = 100  # vertices from which on the matrix is faster


def min_cut(similarity: Tensor) -> Tensor:
    """Which vertices are in the smaller group, [n, n] symmetric, not negative -> [n] bool on the CPU.

    The diagonal is not read. Of two groups of the same size it is the one without vertex 0.
    """
    weights = similarity.detach().double().cpu().numpy()
    count = len(weights)
    if count < 2:
        raise ValueError("a cut needs at least two vertices")
    if not bool((np.isfinite(weights) & (weights >= 0)).all()):
        raise ValueError("similarities have to be finite and not negative")
    side = _cut_of_library(weights) if count <= LARGE else dense_cut(weights)
    if 2 * side.sum() > count or (2 * side.sum() == count and side[0]):
        side = ~side
    return torch.from_numpy(side)


def _cut_of_library(weights: np.ndarray) -> np.ndarray:
    import networkx  # only where a cut is made: few runs need it

    count = len(weights)
    row, column = np.triu_indices(count, 1)
    graph = networkx.Graph()
    graph.add_weighted_edges_from(zip(row.tolist(), column.tolist(), weights[row, column].tolist(), strict=True))
    _, (group, _) = networkx.stoer_wagner(graph)
    side = np.zeros(count, dtype=bool)
    side[list(group)] = True
    return side


def dense_cut(weights: np.ndarray) -> np.ndarray:
    """One side of the minimum cut by the same algorithm over a matrix, n^2 / 2 steps on vectors: [n, n] -> [n] bool."""
    merged = weights.copy()
    np.fill_diagonal(merged, 0.0)
    groups = np.eye(len(weights), dtype=bool)  # the vertices that each row of `merged` stands for
    best, found = np.inf, groups[0]
    while len(merged) > 1:
        reached = merged[0].copy()  # the sum of weights to the vertices that were taken
        reached[0] = -np.inf
        before = last = 0
        for _ in range(len(merged) - 1):
            before, last = last, int(reached.argmax())
            cut = reached[last]
            reached += merged[last]
            reached[last] = -np.inf
        if cut < best:
            best, found = cut, groups[last].copy()
        merged[before] += merged[last]
        merged[:, before] = merged[before]
        merged[before, before] = 0.0
        groups[before] |= groups[last]
        merged = np.delete(np.delete(merged, last, 0), last, 1)
        groups = np.delete(groups, last, 0)
    return found
