"""From arrays to a sound `Graph`: shared by all readers, so that a fault has one message in any file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Features, Graph

if TYPE_CHECKING:
    from torch_geometric.data import Data

PARTS = ("train", "val", "test")
# A label above this is surely an id or a measurement in the wrong column; a model with so many outputs helps
# nobody.
MOST_CLASSES = 10_000


def build_graph(
    name: str,
    edges: Any,
    x: Any,
    y: Any,
    *,
    classes: int | None = None,
    masks: dict[str, Any] | None = None,
    ids: Any = None,
    class_names: tuple[str, ...] | None = None,
    feature_names: tuple[str, ...] | None = None,
    where: str | None = None,
    labelled: bool = True,
) -> Graph:
    """A checked graph from loosely given arrays.

    Edges may come in one or both directions, with self-loops and duplicates: they are cleaned. What cannot be
    meant, such as an edge to a node that is not there or a feature that is not a number, is an error.

    Args:
        name: what to call the graph.
        edges: [2, E] whole numbers.
        x: [N, F] features, an array or a scipy sparse matrix.
        y: [N] labels; -1 (or NaN in a float array) means unlabelled.
        classes: C, if larger than the largest label + 1.
        masks: `{"train": ..., "val": ..., "test": ...}`, bool [N] each.
        ids: [N] distinct names of the nodes.
        class_names: C names of the classes.
        feature_names: F distinct names of the features.
        where: what errors call the graph, such as the file it came from; its name otherwise.
        labelled: whether some node has to have a label.
    """
    where = where or name
    labels = _labels(y, where)
    nodes = labels.shape[0]
    if nodes == 0:
        raise FedquiltError(f"{where} has no nodes; a graph needs at least one.")
    found = int(labels.max()) + 1
    graph = Graph(
        name=name,
        edges=undirected(edges, nodes, where),
        x=_features(x, where),
        y=labels,
        classes=max(found, 0) if classes is None else int(classes),
        masks=None if masks is None else {part: np.asarray(mask) for part, mask in masks.items()},
        ids=None if ids is None else np.asarray(ids),
        class_names=class_names,
        feature_names=feature_names,
    )
    validate(graph, where, labelled)
    return graph


def from_data(data: Data, name: str = "graph", labelled: bool = True) -> Graph:
    """A graph from PyTorch Geometric's `Data`; see `Graph.from_data`. Where it need not be `labelled`, `y` may be missing."""
    for key in ("edge_index", "x", "y"):
        if getattr(data, key, None) is None and (labelled or key != "y"):
            raise FedquiltError(f"{name} has no `{key}`; give a Data with edge_index, x and y.")
    import torch

    masks = {part: getattr(data, f"{part}_mask", None) for part in PARTS}
    # Two-dimensional masks hold several splits at once; which one is meant only the user knows.
    found = {part: mask.cpu().numpy() for part, mask in masks.items() if mask is not None and mask.dim() == 1}
    given = getattr(data, "y", None)
    y = torch.full((data.x.shape[0],), -1) if given is None else given.detach().cpu()
    return build_graph(
        name,
        data.edge_index.detach().cpu().numpy(),
        _features_of_tensor(data.x),
        (y.squeeze(1) if y.dim() == 2 and y.shape[1] == 1 else y).numpy(),
        masks=found if len(found) == len(PARTS) else None,
        labelled=labelled,
    )


def undirected(edges: Any, nodes: int, where: str = "the graph") -> np.ndarray:
    """[2, E] int64: each edge once with ``u < v``, sorted, without self-loops and duplicates."""
    array = np.asarray(edges)
    if array.ndim != 2 or array.shape[0] != 2:
        raise FedquiltError(f"{where} has edges of shape {_shape(array)}; they must be 2 x E, one column an edge.")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise FedquiltError(
            f"{where} has edges of type {array.dtype}; they must be whole numbers, the nodes' positions."
        )
    array = array.astype(np.int64, copy=False)
    if array.size and (array.min() < 0 or array.max() >= nodes):
        u, v = array[:, ((array < 0) | (array >= nodes)).any(axis=0).argmax()]
        raise FedquiltError(
            f"{where} has an edge {u}-{v} to a node that is not there; nodes are numbered 0 to {nodes - 1}."
        )
    low, high = np.minimum(*array), np.maximum(*array)
    # A sort and a comparison: ten times as fast as np.unique, whose newer versions hash.
    keys = np.sort((low * nodes + high)[low != high])
    keys = keys[np.diff(keys, prepend=-1) > 0]
    first = keys // nodes
    return np.stack([first, keys - first * nodes])


def validate(graph: Graph, where: str | None = None, labelled: bool = True) -> None:
    """Raise one clear error for the first fault of a graph; `build_graph` calls it, so a reader need not.

    A graph without a single label is at fault where it has to be `labelled`.
    """
    where = where or graph.name
    nodes = graph.nodes
    if nodes == 0:
        raise FedquiltError(f"{where} has no nodes; a graph needs at least one.")
    _check_edges(graph, where)
    _check_features(graph, where)
    _check_labels(graph, where, labelled)
    if graph.masks is not None:
        _check_masks(graph.masks, nodes, where)
    if graph.ids is not None:
        _check_ids(graph.ids, nodes, where)


def _check_edges(graph: Graph, where: str) -> None:
    edges = graph.edges
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise FedquiltError(f"{where} has edges of shape {_shape(edges)}; they must be 2 x E, one column an edge.")
    if edges.size and (edges.min() < 0 or edges.max() >= graph.nodes):
        raise FedquiltError(
            f"{where} has an edge to a node that is not there; nodes are numbered 0 to {graph.nodes - 1}."
        )
    if (edges[0] >= edges[1]).any():
        raise FedquiltError(
            f"{where} has edges that are not u < v; build it with Graph.from_data or read it from a file."
        )


def _check_features(graph: Graph, where: str) -> None:
    rows, columns = graph.x.shape
    if rows != graph.nodes:
        raise FedquiltError(
            f"{where} has {rows} rows of features but {graph.nodes} labels; give every node one row and one "
            "label "
            "(-1 for unlabelled)."
        )
    if columns == 0:
        raise FedquiltError(f"{where} has no features; give every node at least one.")
    if isinstance(graph.x, np.ndarray):
        bad = np.flatnonzero(~np.isfinite(graph.x).all(axis=1))
    else:
        coo = graph.x.tocoo()
        bad = np.sort(coo.row[~np.isfinite(coo.data)])
    if bad.size:
        raise FedquiltError(
            f"{where} has a feature of node {_called(graph, int(bad[0]))} that is NaN or infinite; "
            "fill or drop such values first."
        )
    if graph.feature_names is not None:
        _check_feature_names(graph.feature_names, columns, where)


def _check_feature_names(names: tuple[str, ...], columns: int, where: str) -> None:
    if len(names) != columns:
        raise FedquiltError(
            f"{where} names {len(names)} features but has {columns}; give one name for each feature, or none at all."
        )
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise FedquiltError(f"{where} has the feature '{twice}' more than once; give every feature its own name.")


def _check_labels(graph: Graph, where: str, labelled: bool) -> None:
    lowest, highest = int(graph.y.min()), int(graph.y.max())
    if lowest < -1:
        raise FedquiltError(f"{where} has the label {lowest}; labels are 0, 1, 2, ... and -1 means unlabelled.")
    if highest < 0 and labelled:
        raise FedquiltError(f"{where} has no labelled node; label at least some of them to train on.")
    if highest >= MOST_CLASSES:
        raise FedquiltError(
            f"{where} has the label {highest}, more than the {MOST_CLASSES} classes allowed; number the "
            "classes 0, 1, 2, ..."
        )
    if graph.classes <= highest:
        raise FedquiltError(
            f"{where} says it has {graph.classes} classes but holds the label {highest}; "
            "the number of classes must be larger than every label."
        )
    if graph.class_names is not None and len(graph.class_names) != graph.classes:
        raise FedquiltError(
            f"{where} names {len(graph.class_names)} classes but has {graph.classes}; give one name for each class."
        )


def _check_masks(masks: dict[str, np.ndarray], nodes: int, where: str) -> None:
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
                f"{where} has a {part}_mask of shape {_shape(mask)} but {nodes} nodes; give one value for each node."
            )
    twice = sum(masks[part].astype(np.int8) for part in PARTS) > 1
    if np.any(twice):
        raise FedquiltError(
            f"{where} has {int(np.sum(twice))} nodes in more than one of its train, val and test masks; "
            "put each node into one at most."
        )


def _check_ids(ids: np.ndarray, nodes: int, where: str) -> None:
    if ids.shape != (nodes,):
        raise FedquiltError(f"{where} has ids of shape {_shape(ids)} but {nodes} nodes; give one id for each node.")
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) < nodes:
        raise FedquiltError(
            f"{where} has the id '{distinct[counts.argmax()]}' more than once; give every node its own."
        )


def _labels(y: Any, where: str) -> np.ndarray:
    array = np.asarray(y)
    if array.ndim != 1:
        raise FedquiltError(f"{where} has labels of shape {_shape(array)}; give one whole number for each node.")
    if array.size and np.issubdtype(array.dtype, np.floating):
        array = np.where(np.isnan(array), -1, array)
        if (array != np.round(array)).any():
            raise FedquiltError(f"{where} has labels that are not whole numbers; number the classes 0, 1, 2, ...")
    elif array.size and not (np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_):
        raise FedquiltError(f"{where} has labels of type {array.dtype}; number the classes 0, 1, 2, ...")
    return array.astype(np.int64)


def _features(x: Any, where: str) -> Features:
    if sp.issparse(x):
        matrix = sp.csr_matrix(x, dtype=np.float32)
        matrix.sum_duplicates()
        return matrix
    array = np.asarray(x)
    if array.ndim != 2:
        raise FedquiltError(f"{where} has features of shape {_shape(array)}; they must be nodes x features.")
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_) or np.iscomplexobj(array):
        raise FedquiltError(f"{where} has features of type {array.dtype}; they must be numbers.")
    # A value too large for float32 becomes infinite here and is reported as such.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)


def _features_of_tensor(x: Any) -> Any:
    import torch

    x = x.detach().cpu()
    if x.layout == torch.strided:
        return x.numpy()
    coo = x.to_sparse_coo().coalesce()
    return sp.csr_matrix((coo.values().numpy(), coo.indices().numpy()), shape=tuple(coo.shape))


def _called(graph: Graph, node: int) -> str:
    return str(node) if graph.ids is None else f"'{graph.ids[node]}'"


def _shape(array: np.ndarray) -> str:
    return " x ".join(str(side) for side in array.shape) or "()"
