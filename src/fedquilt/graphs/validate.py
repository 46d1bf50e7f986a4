"""Validate the parts of a graph: one clear error for each fault, whatever file the graph came from."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedquilt.common.printable import fault_of_name
from fedquilt.errors import FedquiltError
from fedquilt.graphs.arrays import Features, shape_text
from fedquilt.graphs.column_sums import row_blocks

PARTS = ("train", "val", "test")
# A larger label is almost certainly an id or a measurement in the wrong column.
MOST_CLASSES = 10_000
# A wider matrix is almost certainly one with a wrong shape; a model has a row of weights for each feature.
MOST_FEATURES = 10_000_000
# The sum of squares of so many such features is still finite in single precision (3.4e38).
LARGEST_FEATURE = 1e15


def check_edges(edges: np.ndarray, nodes: int, where: str) -> None:
    """Check that edges are [2, E], join existing nodes, and have ``u < v``."""
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise FedquiltError(f"{where} has edges of shape {shape_text(edges)}; they must be 2 x E, one column an edge.")
    if edges.size and (edges.min() < 0 or edges.max() >= nodes):
        raise FedquiltError(f"{where} has an edge to a node that is not there; nodes are numbered 0 to {nodes - 1}.")
    if (edges[0] >= edges[1]).any():
        raise FedquiltError(
            f"{where} has edges that are not u < v; build it with Graph.from_data or read it from a file."
        )


def check_features(x: Features, nodes: int, names: tuple[str, ...] | None, ids: np.ndarray | None, where: str) -> None:
    """Check that features are [N, F] finite numbers, F > 0, with F distinct names if they have names."""
    rows, columns = x.shape
    if rows != nodes:
        raise FedquiltError(
            f"{where} has {rows} rows of features but {nodes} labels; give every node one row and one label "
            "(-1 for unlabelled)."
        )
    if columns == 0:
        raise FedquiltError(f"{where} has no features; give every node at least one.")
    if columns > MOST_FEATURES:
        raise FedquiltError(
            f"{where} has {columns:,} features, more than the {MOST_FEATURES:,} allowed; check their shape."
        )
    for fits, problem in (
        (np.isfinite, "that is NaN or infinite; fill or drop such values first"),
        (_fits, f"beyond {LARGEST_FEATURE:g}, where sums overflow in single precision; scale that feature first"),
    ):
        if isinstance(x, np.ndarray):
            blocks = (rows.start + np.flatnonzero(~fits(x[rows]).all(axis=1)) for rows in row_blocks(x))
            bad = next((found for found in blocks if found.size), np.zeros(0, dtype=np.int64))
        else:
            coo = x.tocoo()
            bad = np.sort(coo.row[~fits(coo.data)])
        if bad.size:
            node = bad[0] if ids is None or len(ids) != nodes else f"'{ids[bad[0]]}'"
            raise FedquiltError(f"{where} has a feature of node {node} {problem}.")
    if names is not None:
        _check_feature_names(names, columns, where)


def _fits(values: np.ndarray) -> np.ndarray:
    return np.abs(values) <= LARGEST_FEATURE


def check_text(
    name: str, class_names: tuple[str, ...] | None, feature_names: tuple[str, ...] | None, where: str
) -> None:
    """Check that names are text that can be written to any file."""
    for what, names in (
        ("a name", (name,)),
        ("a class's name", class_names or ()),
        ("a feature's name", feature_names or ()),
    ):
        for one in names:
            if fault := fault_of_name(one):
                raise FedquiltError(f"{where} has {what} with {fault}; rename it.")


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that was there before; None where all are distinct."""
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]


def _check_feature_names(names: tuple[str, ...], columns: int, where: str) -> None:
    if len(names) != columns:
        raise FedquiltError(
            f"{where} names {len(names)} features but has {columns}; give one name for each feature, or none at all."
        )
    if (twice := first_repeated(names)) is not None:
        raise FedquiltError(f"{where} has the feature '{twice}' more than once; give every feature its own name.")


def check_labels(y: np.ndarray, classes: int, names: tuple[str, ...] | None, labelled: bool, where: str) -> None:
    """Check that labels are -1 .. classes-1 and, if `labelled`, that at least one node has a label."""
    lowest, highest = int(y.min()), int(y.max())
    if lowest < -1:
        raise FedquiltError(f"{where} has the label {lowest}; labels are 0, 1, 2, ... and -1 means unlabelled.")
    if highest < 0 and labelled:
        raise FedquiltError(f"{where} has no labelled node; label at least some of them to train on.")
    if highest >= MOST_CLASSES:
        raise FedquiltError(
            f"{where} has the label {highest}, more than the {MOST_CLASSES} classes allowed; number the "
            "classes 0, 1, 2, ..., or give y as floats where labels are numbers for a regression."
        )
    if classes <= highest:
        raise FedquiltError(
            f"{where} says it has {classes} classes but holds the label {highest}; "
            "the number of classes must be larger than every label."
        )
    if classes > MOST_CLASSES:
        raise FedquiltError(f"{where} says it has {classes} classes, more than the {MOST_CLASSES} allowed.")
    if names is not None and len(names) != classes:
        raise FedquiltError(f"{where} names {len(names)} classes but has {classes}; give one name for each class.")


def check_masks(masks: dict[str, np.ndarray], nodes: int, where: str) -> None:
    """Check that there are three masks, named as in `PARTS`, each bool [N], and that they are disjoint."""
    if set(masks) != set(PARTS):
        raise FedquiltError(f"{where} has some masks only; give all of train_mask, val_mask and test_mask, or none.")
    for part in PARTS:
        mask = masks[part]
        if mask.dtype != np.bool_:
            raise FedquiltError(
                f"{where} has a {part}_mask of type {mask.dtype}; masks must be true or false for each node."
            )
        if mask.shape != (nodes,):
            raise FedquiltError(
                f"{where} has a {part}_mask of shape {shape_text(mask)} but {nodes} nodes; give one value for each node."
            )
    twice = sum(masks[part].astype(np.int8) for part in PARTS) > 1
    if np.any(twice):
        raise FedquiltError(
            f"{where} has {int(np.sum(twice))} nodes in more than one of its train, val and test masks; "
            "put each node into one at most."
        )


def check_ids(ids: np.ndarray, nodes: int, where: str) -> None:
    """Check that ids are N distinct values."""
    if ids.shape != (nodes,):
        raise FedquiltError(f"{where} has ids of shape {shape_text(ids)} but {nodes} nodes; give one id for each node.")
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) < nodes:
        raise FedquiltError(
            f"{where} has the id '{distinct[counts.argmax()]}' more than once; give every node its own."
        )


def check_copies(copies: np.ndarray, nodes: int, where: str) -> None:
    """Check that copies are one whole number for each node."""
    if copies.shape != (nodes,):
        raise FedquiltError(
            f"{where} has copies of shape {shape_text(copies)} but {nodes} nodes; give one number for each node."
        )
    if not np.issubdtype(copies.dtype, np.integer):
        raise FedquiltError(
            f"{where} has copies of type {copies.dtype}; they must be whole numbers, the same for copies of one another."
        )
