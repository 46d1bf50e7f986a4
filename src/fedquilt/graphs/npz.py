"""Read and write fedquilt's graph format: one compressed NumPy archive a graph, never pickled. See `docs/data.md`."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.validate import PARTS

SPARSE_KEYS = ("x_indptr", "x_indices", "x_data", "x_shape")
MASK_KEYS = tuple(f"{part}_mask" for part in PARTS)
KEYS = (
    "name",
    "edge_index",
    "y",
    "x",
    *SPARSE_KEYS,
    *MASK_KEYS,
    "ids",
    "classes",
    "class_names",
    "copies",
    "feature_names",
)


def read_npz(path: str | os.PathLike[str], name: str | None = None, labelled: bool = True) -> Graph:
    """Read the graph in an npz file. Its name is `name`, or else the one stored in the file, or else the file's own.

    Unless `labelled`, the labels may be missing.
    """
    path = Path(path)
    arrays = load_arrays(path, KEYS)
    where = str(path)
    for key in ("edge_index", "y"):
        if key not in arrays and (labelled or key != "y"):
            raise FedquiltError(
                f"{where} has no array '{key}'; a graph file needs edge_index, y and x (see docs/data.md)."
            )
    masks = {part: arrays[f"{part}_mask"] for part in PARTS if f"{part}_mask" in arrays}
    x = _features(arrays, where)
    return Graph.from_arrays(
        name or (str(arrays["name"]) if "name" in arrays else path.stem),
        arrays["edge_index"],
        x,
        arrays["y"] if "y" in arrays else np.full(x.shape[0] if x.ndim else 0, -1),
        classes=_whole(arrays["classes"], "classes", where) if "classes" in arrays else None,
        masks=masks or None,
        ids=arrays.get("ids"),
        class_names=_texts(arrays.get("class_names")),
        copies=arrays.get("copies"),
        feature_names=_texts(arrays.get("feature_names")),
        where=where,
        labelled=labelled,
    )


def write_npz(graph: Graph, path: str | os.PathLike[str], private: bool = False) -> None:
    """Write a graph; the file appears complete or not at all. With `private`, only its owner may read it."""
    path = Path(path)
    arrays: dict[str, Any] = {
        "name": np.array(graph.name),
        "edge_index": graph.edges.astype(np.int32),
        "y": graph.y.astype(np.int32),
        "classes": np.array(graph.classes, dtype=np.int32),
    }
    if isinstance(graph.x, np.ndarray):
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

    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            flags, mode = os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if private else 0o666
            with open(os.open(temporary, flags, mode), "wb") as file:
                np.savez_compressed(file, **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise FedquiltError(
            f"{path} could not be written ({error.strerror or error}); choose a folder you may write to."
        ) from error


def load_arrays(path: Path, keys: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Load the arrays among `keys` that an npz file has. Each kind of damage has its own error message."""
    if path.is_dir():
        raise FedquiltError(f"{path} is a folder, not a file; name the npz file in it.")
    if not path.exists():
        raise FedquiltError(f"There is no file '{path}'; check the path.")
    try:
        archive = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FedquiltError(
            f"{path} is not an npz file, or is damaged; write it with numpy.savez or fedquilt.graphs.write_npz."
        ) from error
    except OSError as error:
        raise FedquiltError(
            f"{path} could not be opened ({error.strerror or error}); check that you may read it."
        ) from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise FedquiltError(
            f"{path} holds a single array, not a graph; write it with numpy.savez or fedquilt.graphs.write_npz."
        )
    arrays = {}
    with archive:
        for key in (key for key in keys if key in archive.files):
            try:
                arrays[key] = archive[key]
            except ValueError as error:
                if "allow_pickle" not in str(error):
                    raise _damaged(path, key) from error
                raise FedquiltError(
                    f"{path} holds pickled objects in '{key}', which could run code when read; "
                    "save plain arrays of numbers or strings instead."
                ) from error
            except (EOFError, OSError, zipfile.BadZipFile, zlib.error, MemoryError) as error:
                raise _damaged(path, key) from error
    return arrays


def csr(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, shape: Any, where: str) -> sp.csr_matrix:
    """Build a CSR matrix from a file's arrays. It is checked in full, because bad indices would crash much later."""
    try:
        matrix = sp.csr_matrix(
            (data.astype(np.float32), indices.astype(np.int64), indptr.astype(np.int64)),
            shape=tuple(int(side) for side in shape),
        )
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise FedquiltError(
            f"{where} has a sparse matrix whose parts do not fit together; check its indptr, indices, data and shape."
        ) from error
    return matrix


def _features(arrays: dict[str, np.ndarray], where: str) -> Any:
    if "x" in arrays:
        return arrays["x"]
    missing = [key for key in SPARSE_KEYS if key not in arrays]
    if len(missing) == len(SPARSE_KEYS):
        raise FedquiltError(f"{where} has no array 'x'; a graph file needs edge_index, y and x (see docs/data.md).")
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


def _damaged(path: Path, key: str) -> FedquiltError:
    return FedquiltError(f"{path} is damaged: its array '{key}' cannot be read; copy or download the file again.")
