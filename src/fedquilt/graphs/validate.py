"""Validate the parts of a graph: one clear error for each fault, whatever file the graph came from."""

from __future__ import annotations

import numpy as np

from fedquilt.errors import FedquiltError
from fedquilt.graphs.arrays import Features, shape_text

PARTS = ("train", "val", "test")
# A larger label is almost certainly an id or a measurement in the wrong column.
MOST_CLASSES = 10_000


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
    if isinstance(x, np.ndarray):
        bad = np.flatnonzero(~np.isfinite(x).all(axis=1))
    else:
        coo = x.tocoo()
        bad = np.sort(coo.row[~np.isfinite(coo.data)])
    if bad.size:
        node = bad[0] if ids is None else f"'{ids[bad[0]]}'"
        raise FedquiltError(
            f"{where} has a feature of node {node} that is NaN or infinite; fill or drop such values first."
        )
    if names is not None:
        _check_feature_names(names, columns, where)


def _check_feature_names(names: tuple[str, ...], columns: int, where: str) -> None:
    if len(names) != columns:
        raise FedquiltError(
            f"{where} names {len(names)} features but has {columns}; give one name for each feature, or none at all."
        )
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
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
            "classes 0, 1, 2, ..."
        )
    if classes <= highest:
        raise FedquiltError(
            f"{where} says it has {classes} classes but holds the label {highest}; "
            "the number of classes must be larger than every label."
        )
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
