"""Read and write fedquilt's graph format: one compressed NumPy archive a graph, never pickled. See `fedquilt docs data`."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedquilt.common import files
from fedquilt.common.archives import read_arrays
from fedquilt.errors import FedquiltError
from fedquilt.graphs.arrays import shape_text
from fedquilt.graphs.edge_weights import given_weight, warn_of_direction, warn_of_unused
from fedquilt.graphs.encoding import Encoding
from fedquilt.graphs.federated import FederatedGraph, with_owners
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.mapped_features import features_file, map_features, write_features
from fedquilt.graphs.validate import PARTS

SPARSE_KEYS = ("x_indptr", "x_indices", "x_data", "x_shape")
MASK_KEYS = tuple(f"{part}_mask" for part in PARTS)
KEYS = (
    "name",
    "edge_index",
    "edge_weight",
    "edge_attr",
    "y",
    "x",
    *SPARSE_KEYS,
    *MASK_KEYS,
    "ids",
    "classes",
    "class_names",
    "copies",
    "feature_names",
    "encoding",
    "client",
    "client_names",
    "numbers",
)


def read_npz(path: str | os.PathLike[str], name: str | None = None, labelled: bool = True) -> Graph:
    """Read the graph in an npz file. Its name is `name`, or else the one stored in the file, or else the file's own.

    Unless `labelled`, the labels may be missing. It is a `FederatedGraph` where the file says which client holds each node.
    """
    path = Path(path)
    arrays = read_arrays(path, KEYS)
    where = str(path)
    for key in ("edge_index", "y"):
        if key not in arrays and (labelled or key != "y"):
            raise FedquiltError(
                f"{where} has no array '{key}'; a graph file needs edge_index, y and x (see 'fedquilt docs data')."
            )
    warn_of_direction(arrays["edge_index"], where, usual=True)
    edges = SimpleNamespace(edge_weight=arrays.get("edge_weight"), edge_attr=arrays.get("edge_attr"))
    weight = given_weight(edges)
    if edges.edge_attr is not None and edges.edge_attr is not weight:
        warn_of_unused(["edge_attr"], where, "array")
    masks = {part: arrays[f"{part}_mask"] for part in PARTS if f"{part}_mask" in arrays}
    clients, x = _clients(arrays, where), _features(arrays, path)
    if "y" not in arrays and (x.ndim != 2 or not x.shape[1]):
        raise FedquiltError(f"{where} has features of shape {shape_text(x)}; they must be nodes x features.")
    graph = Graph.from_arrays(
        name or (str(arrays["name"]) if "name" in arrays else path.stem),
        arrays["edge_index"],
        x,
        arrays["y"] if "y" in arrays else np.full(x.shape[0], -1),
        classes=_whole(arrays["classes"], "classes", where) if "classes" in arrays else None,
        masks=masks or None,
        ids=arrays.get("ids") if clients is None else None,  # two clients may have the same ids
        class_names=_texts(arrays.get("class_names")),
        copies=arrays.get("copies"),
        feature_names=_texts(arrays.get("feature_names")),
        encoding=Encoding.from_json(str(arrays["encoding"]), where) if "encoding" in arrays else None,
        edge_weights=weight,
        numbers=arrays.get("numbers"),
        where=where,
        labelled=labelled,
    )
    if clients is None:
        return graph
    return with_owners(graph, clients, _texts(arrays.get("client_names")), arrays.get("ids"))


def read_npz_clients(path: str | os.PathLike[str]) -> np.ndarray | None:
    """[N] names of the client that holds each node, as a graph's file says; None where it does not."""
    return _clients(read_arrays(Path(path), ("client", "y", "x", "x_shape")), str(path))


def _clients(arrays: dict[str, np.ndarray], path: str) -> np.ndarray | None:
    """The array `client` of a file, checked."""
    if "client" not in arrays:
        return None
    clients = arrays["client"]
    if "y" in arrays:
        nodes = len(np.atleast_1d(arrays["y"]))
    else:
        nodes = int(arrays["x_shape"].ravel()[0]) if "x_shape" in arrays else len(np.atleast_1d(arrays.get("x", 0)))
    if clients.shape != (nodes,) or clients.dtype.kind not in "Uiu":
        raise FedquiltError(
            f"{path} has a 'client' of shape {shape_text(clients)} and type {clients.dtype} for {nodes} nodes; give the name "
            "or the number of a client for each node."
        )
    names = clients.astype(str)
    if (names == "").any():
        raise FedquiltError(f"{path} has a node without a client in 'client'; name one for each node.")
    return names


def write_npz(
    graph: Graph,
    path: str | os.PathLike[str],
    private: bool = False,
    clients: np.ndarray | None = None,
    features_apart: bool = False,
) -> None:
    """Write a graph; the file appears complete or not at all.

    Args:
        graph: the graph.
        path: the file.
        private: whether only its owner may read it.
        clients: [N] names of the client that holds each node, for `read_npz_clients`; None: not said.
        features_apart: whether dense features are written to a file of their own, mine.x.npy beside mine.npz: they are then not
            read into memory, but mapped.
    """
    path, mode = Path(path), 0o600 if private else 0o666
    if features_apart and not isinstance(graph.x, np.ndarray):
        raise FedquiltError(
            f"{graph.name} has sparse features, which cannot be mapped; write it without features_apart."
        )
    arrays: dict[str, Any] = {
        "name": np.array(graph.name),
        "edge_index": graph.edges.astype(np.int32),
        "y": graph.y.astype(np.int32),
        "classes": np.array(graph.classes, dtype=np.int32),
    }
    if isinstance(graph.x, np.ndarray):
        if not features_apart:
            arrays["x"] = _small(graph.x)
    else:
        arrays["x_indptr"], arrays["x_indices"] = graph.x.indptr, graph.x.indices
        arrays["x_data"] = _small(graph.x.data)
        arrays["x_shape"] = np.array(graph.x.shape, dtype=np.int64)
    for part, mask in (graph.masks or {}).items():
        arrays[f"{part}_mask"] = mask
    if graph.ids is not None:
        if graph.ids.dtype == object:
            raise FedquiltError(f"{graph.name} has ids of mixed types; make them all strings or all whole numbers.")
        arrays["ids"] = graph.ids
    if graph.class_names is not None:
        arrays["class_names"] = np.array(graph.class_names)
    if graph.copies is not None:
        arrays["copies"] = graph.copies
    if graph.feature_names is not None:
        arrays["feature_names"] = np.array(graph.feature_names)
    if graph.encoding is not None:
        arrays["encoding"] = np.array(graph.encoding.to_json())
    if clients is None and isinstance(graph, FederatedGraph):
        clients = graph.owner if graph.client_names is None else np.array(graph.client_names)[graph.owner]
        if graph.client_names is not None:
            arrays["client_names"] = np.array(graph.client_names)
    if clients is not None:
        arrays["client"] = np.asarray(clients)
    if graph.edge_weights is not None:
        arrays["edge_weight"] = graph.edge_weights
    if graph.numbers is not None:
        arrays["numbers"] = graph.numbers

    try:
        if features_apart:
            write_features(graph.x, features_file(path), mode)
        files.write_npz(path, arrays, mode)
    except OSError as error:
        raise FedquiltError(
            f"{path} could not be written ({error.strerror or error}); choose a folder you may write to."
        ) from error


def csr(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, shape: Any, where: str) -> sp.csr_matrix:
    """Build a CSR matrix from a file's arrays. It is checked in full, because bad indices would crash much later."""
    wrong = FedquiltError(
        f"{where} has a sparse matrix whose parts do not fit together; check its indptr, indices, data and shape."
    )
    if not all(np.issubdtype(part.dtype, np.integer) for part in (indptr, indices)) or data.dtype.kind not in "biuf":
        raise wrong
    try:
        # A value too large for float32 becomes infinite here; validation reports it.
        with np.errstate(over="ignore"):
            values = data.astype(np.float32)
        matrix = sp.csr_matrix(
            (values, indices.astype(np.int64), indptr.astype(np.int64)), shape=tuple(int(side) for side in shape)
        )
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise wrong from error
    return matrix


def _features(arrays: dict[str, np.ndarray], path: Path) -> Any:
    """The features in the file, or those that lie beside it, which are mapped (`fedquilt.graphs.mapped_features`)."""
    where = str(path)
    if "x" in arrays:
        return arrays["x"]
    missing = [key for key in SPARSE_KEYS if key not in arrays]
    if len(missing) == len(SPARSE_KEYS):
        if (apart := features_file(path)).is_file():
            return map_features(apart)
        raise FedquiltError(
            f"{where} has no array 'x'; a graph file needs edge_index, y and x (see 'fedquilt docs data'), or its features in "
            f"the file {apart.name} beside it."
        )
    if missing:
        raise FedquiltError(
            f"{where} has no array '{missing[0]}'; sparse features need all of {', '.join(SPARSE_KEYS)}."
        )
    indptr, indices, data, shape = (arrays[key] for key in SPARSE_KEYS)
    return csr(indptr, indices, data, shape, where)


def _small(values: np.ndarray) -> np.ndarray:
    """Convert values to bytes if all are whole numbers from 0 to 255; this makes the file a quarter of the size."""
    as_bytes = values.astype(np.uint8) if values.size and values.min() >= 0 and values.max() <= 255 else values
    return as_bytes if np.array_equal(as_bytes, values) else values


def _texts(array: np.ndarray | None) -> tuple[str, ...] | None:
    return None if array is None else tuple(str(each) for each in array.ravel())


def _whole(array: np.ndarray, key: str, where: str) -> int:
    if array.size != 1 or not np.issubdtype(array.dtype, np.integer):
        raise FedquiltError(f"{where} has a '{key}' that is not one whole number; write the number of classes there.")
    return int(array.item())
