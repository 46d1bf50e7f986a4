"""The weights of a graph's edges, as a file or a user gives them, and what of edges is not used, in sentences.

Weights are positive: an edge that weighs nothing is no edge. Only their ratios within one client's graph matter
(`Client.edge_weights`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedquilt.common.printable import printable
from fedquilt.errors import FedquiltError
from fedquilt.graphs.arrays import shape_text, undirected

# Between them the ratio of any two weights, and sums of them, are ordinary numbers in single precision.
LEAST_WEIGHT, LARGEST_WEIGHT = 1e-15, 1e15
HOW = "weights are positive numbers, and an edge that should not count is left out"
_log = logging.getLogger(__name__)


def weight_array(weights: Any, count: int, where: str) -> np.ndarray:
    """Convert weights to [E] float32, E = `count`; refuse any that is not a positive finite number."""
    array = np.asarray(weights)
    if array.shape == (count, 1):
        array = array[:, 0]
    if array.dtype.kind not in "iuf":
        raise FedquiltError(f"{where} has edge weights of type {array.dtype}; {HOW}.")
    check_weights(array, count, where)
    return array.astype(np.float32)


def check_weights(weights: np.ndarray, count: int, where: str) -> None:
    """Check that there is one weight for each of `count` edges, each a positive number from 1e-15 to 1e15."""
    if weights.shape != (count,):
        raise FedquiltError(
            f"{where} has edge weights of shape {shape_text(weights)} but {count} edges; give one for each edge."
        )
    bad = np.flatnonzero(~weight_fits(weights))
    if bad.size:
        raise FedquiltError(f"{where} has {weight_fault(weights[bad[0]])} (number {bad[0]}, from 0 on).")


def weight_fits(weights: np.ndarray) -> np.ndarray:
    """Whether each is a positive number that can be used; NaN and infinity are not."""
    fits: np.ndarray = (weights >= LEAST_WEIGHT) & (weights <= LARGEST_WEIGHT)
    return fits


def weight_fault(weight: Any) -> str:
    """What is wrong with a weight that does not fit and what to do, as the end of a sentence."""
    if np.isfinite(weight) and weight > 0:
        return (
            f"an edge of weight {weight:g}, beyond {LEAST_WEIGHT:g} to {LARGEST_WEIGHT:g}; multiply all by one number"
        )
    return f"an edge of weight {weight:g}; {HOW}"


def undirected_with_weights(
    edges: Any, weights: np.ndarray | None, nodes: int, where: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Clean edges as `undirected` does, and their weights [E] with them.

    An edge that is named more than once, in either direction, has the largest of its weights. So naming an edge twice changes
    nothing, as without weights. Where the weights differ, a warning says how many edges they are.
    """
    cleaned = undirected(edges, nodes, where)
    if weights is None:
        return cleaned, None
    array = np.asarray(edges).astype(np.int64, copy=False)
    low, high = np.minimum(*array), np.maximum(*array)
    kept = low != high
    keys, values = (low * nodes + high)[kept], weights[kept]
    order = keys.argsort(kind="stable")
    keys, values = keys[order], values[order]
    if not keys.size:
        return cleaned, values
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    merged = np.maximum.reduceat(values, first)
    if unequal := int((np.minimum.reduceat(values, first) != merged).sum()):
        _log.warning(
            "%s: %s named more than once with different weights; the largest is used (add them up first if they "
            "count events).",
            where,
            "1 edge is" if unequal == 1 else f"{unequal:,} edges are",
        )
    return cleaned, merged


def warn_of_direction(edges: Any, where: str, usual: bool) -> None:
    """Say that direction is not used, where edges seem to have one: not each of them is named in both directions.

    Args:
        edges: [2, E] whole numbers, as given.
        where: what has them.
        usual: whether a list that names no edge in both directions is the usual way to write an undirected graph, as in a
            table. It is then information, no warning; and nothing is said of edges that all lead to the later node, as
            those of a `Graph`.
    """
    array = np.asarray(edges)
    if array.ndim != 2 or array.shape[0] != 2 or not array.size or array.dtype.kind not in "iu":
        return  # reported elsewhere
    if usual and (array[0] < array[1]).all():
        return
    one_way, all_pairs = one_way_edges(array)
    if not one_way:
        return
    level = logging.INFO if usual and one_way == all_pairs else logging.WARNING
    given = "edges are" if one_way == all_pairs else f"{one_way:,} of {all_pairs:,} edges are"
    _log.log(
        level,
        "%s: %s given in one direction only; direction is not used, every edge joins its two nodes both ways.",
        where,
        given,
    )


def one_way_edges(edges: np.ndarray) -> tuple[int, int]:
    """How many pairs of nodes are joined in one direction only, and how many are joined at all; loops are no pairs."""
    u, v = edges.astype(np.int64, copy=False)
    nodes = int(edges.max()) + 1
    there = np.unique((u * nodes + v)[u < v])
    back = np.unique((v * nodes + u)[u > v])
    both = int(np.isin(there, back, assume_unique=True).sum())
    all_pairs = there.size + back.size - both
    return all_pairs - both, all_pairs


def warn_of_unused(names: Sequence[str], where: str, kind: str) -> None:
    """Say which columns or arrays of edges are not used; nothing where there are none."""
    if names:
        listed = ", ".join(f"'{printable(name)}'" for name in names[:6]) + (", ..." if len(names) > 6 else "")
        _log.warning("%s: not used of its edges: the %s %s.", where, kind, listed)


def given_weight(data: Any) -> Any:
    """The weights of the edges of PyTorch Geometric's `Data`: `edge_weight`, or else an `edge_attr` of one number an edge.

    None where it has neither. It is the very tensor (or array) that `data` has.
    """
    weight, attr = getattr(data, "edge_weight", None), getattr(data, "edge_attr", None)
    return attr if weight is None and attr is not None and _one_each(attr) else weight


def unused_edge_attributes(data: Any) -> list[str]:
    """What else the edges of PyTorch Geometric's `Data` have beside their ends and their weights."""
    names = [name for name in data.edge_attrs() if name != "edge_index"] if hasattr(data, "edge_attrs") else []
    weight = given_weight(data)
    return [name for name in names if getattr(data, name) is not weight]


def _one_each(attr: Any) -> bool:
    return bool(attr.ndim == 1 or (attr.ndim == 2 and attr.shape[1] == 1))


def weights_in_words(weights: np.ndarray | None) -> str:
    """The range of the weights, such as `0.5 to 12, mean 3.1`; `none` where edges have none."""
    if weights is None or not weights.size:
        return "none"
    return f"{weights.min():.3g} to {weights.max():.3g}, mean {weights.mean(dtype=np.float64):.3g}"
