"""Dense features that stay on disk: an npy file beside the graph's npz file, mapped into memory.

`mine.npz` without an array x has its features in `mine.x.npy`: [N, F] float32, as numpy.save writes it. The system reads the
pages that are used and drops them when memory is short. What is made of such features (the rows of clients that do not lie
together, features on another scale) is written to unnamed files in TMPDIR, and mapped too.
"""

from __future__ import annotations

import math
import mmap
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from fedquilt.common import files
from fedquilt.common.archives import BoundedReads, DamagedArchiveError
from fedquilt.errors import FedquiltError
from fedquilt.graphs.arrays import Features
from fedquilt.graphs.column_sums import row_blocks

HOW = "write it with numpy.save, as an array of float32 with a row for each node"


def features_file(path: Path) -> Path:
    """The file with the features of the graph in an npz file, where they are not in it: mine.npz has mine.x.npy."""
    return path.with_suffix(".x.npy")


def map_features(path: Path) -> np.ndarray:
    """The features [N, F] in an npy file, mapped and read-only. What the file declares is checked; nothing is unpickled."""
    try:
        with BoundedReads(path) as file:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, by_columns, dtype = read(file)
            start, size = file.tell(), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise FedquiltError(
            f"{path} could not be opened ({error.strerror or error}); check that you may read it."
        ) from error
    # NumPy evaluates the header as a Python literal and checks little of it.
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, TypeError, SyntaxError, TokenError) as error:
        raise _damaged(path) from error
    except (RecursionError, MemoryError, AttributeError, IndexError):
        raise _damaged(path) from None
    if dtype.hasobject or dtype != np.float32 or not dtype.isnative:
        raise FedquiltError(f"{path} has features of another type than float32, which cannot be mapped; {HOW}.")
    if len(shape) != 2 or not all(shape) or by_columns:
        raise FedquiltError(f"{path} does not hold rows of features, nodes x features one after the other; {HOW}.")
    if any(side < 0 for side in shape) or math.prod(shape) * dtype.itemsize != size - start:
        raise _damaged(path)
    return np.asarray(np.memmap(path, dtype=np.float32, mode="r", offset=start, shape=shape))


def write_features(x: np.ndarray, path: Path, mode: int = 0o666) -> None:
    """Write features [N, F] for `map_features`, block by block; the file appears complete or not at all."""
    with files.replacing(path, mode) as temporary:
        out = np.lib.format.open_memmap(temporary, "w+", np.float32, x.shape)
        for rows in row_blocks(x):
            out[rows] = x[rows]
        out.flush()


def is_mapped(x: Features) -> bool:
    """Whether features are a mapped file, or a view of one."""
    owner: Any = x
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    if isinstance(owner, mmap.mmap):
        return True
    if not hasattr(owner, "untyped_storage"):
        return False
    from fedquilt.devices.offload import is_offloaded  # torch is loaded: this is a tensor's

    return is_offloaded(owner)


def some_rows(x: Features, nodes: np.ndarray) -> Features:
    """The rows of some nodes: a copy in memory, or on disk where x is; a view of x where the nodes lie together there."""
    if not is_mapped(x):
        return x[nodes]
    if nodes.size and nodes[-1] - nodes[0] + 1 == nodes.size and (np.diff(nodes) == 1).all():
        return x[nodes[0] : nodes[-1] + 1]
    return _made((nodes.size, x.shape[1]), lambda rows: x[nodes[rows]])


def changed(x: Features, change: Callable[[Features], Features]) -> Features:
    """Features that `change` makes row by row, [n, F] -> [n, F]: on disk where x is."""
    return _made(x.shape, lambda rows: change(x[rows])) if is_mapped(x) else change(x)


def _made(shape: tuple[int, int], rows_of: Callable[[slice], Features]) -> np.ndarray:
    """An array in an unnamed file, filled block by block."""
    import torch

    from fedquilt.devices.offload import offloaded_zeros, release_pages

    tensor = offloaded_zeros(shape, torch.float32, "The features")
    out: np.ndarray = tensor.numpy()
    for rows in row_blocks(out):
        out[rows] = rows_of(rows)
        release_pages(tensor[rows])
    return out


def _damaged(path: Path) -> FedquiltError:
    return DamagedArchiveError(f"{path} is no npy file with an array, or is damaged; {HOW}.")
