"""Tensors that rest on disk: what clients keep while it is not their turn, when it would not fit into memory.

A resting tensor is a file that is mapped into memory: it is read and written like any other, and the system keeps what is in
use and writes the rest out. `release` tells it that some rows are not in use any more. The file has no name from the start, so
nothing is left behind however the process ends. It is made in the folder for temporary files (TMPDIR).
"""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedquilt.errors import FedquiltError

LIMIT = 2**30  # bytes of all clients' states from which on those of idle clients rest on disk
ROWS = 256  # clients whose rows are looked at together
_SPARE = 2**30  # bytes left free on the disk

_resting: dict[int, mmap.mmap] = {}  # by the address of the first number


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor that rests on disk, full of zeros."""
    size = max(1, math.prod(shape)) * torch.empty((), dtype=dtype).element_size()
    folder = tempfile.gettempdir()
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            if size + _SPARE > shutil.disk_usage(folder).free:
                raise OSError
            os.ftruncate(file.fileno(), size)
            if hasattr(os, "posix_fallocate"):  # takes the room now: to find it gone while writing would be fatal
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError:
            held, free = sum(map(len, _resting.values())), shutil.disk_usage(folder).free
            raise FedquiltError(
                f"The clients' models need {(held + size) / 2**30:.1f} GiB on disk or more, and {folder} has only "
                f"{(held + free) / 2**30:.1f} GiB for them; set TMPDIR to a folder with more room, or use fewer clients or "
                "a smaller model."
            ) from None
        mapping = mmap.mmap(file.fileno(), size)
    array = np.frombuffer(mapping, dtype=np.uint8)
    tensor = torch.from_numpy(array).view(dtype)[: math.prod(shape)].view(shape)
    place = array.ctypes.data
    _resting[place] = mapping
    weakref.finalize(array, _resting.pop, place, None)
    return tensor


def like(tensor: Tensor) -> Tensor:
    """A new tensor of the same shape, of whatever numbers: on disk where this one is, else where it is."""
    return empty(tuple(tensor.shape), tensor.dtype) if _mapping(tensor) else torch.empty_like(tensor)


def copied(tensor: Tensor) -> Tensor:
    """The same numbers, resting on disk."""
    out = empty(tuple(tensor.shape), tensor.dtype)
    for rows, piece in pieces(out):
        piece.copy_(tensor[rows])
    return out


def rests(tensor: Tensor) -> bool:
    """Whether it rests on disk, whole or as rows of one that does."""
    return _mapping(tensor) is not None


def _mapping(tensor: Tensor) -> mmap.mmap | None:
    return None if tensor.device.type != "cpu" else _resting.get(tensor.untyped_storage().data_ptr())


def release(*tensors: Any) -> None:
    """Say that the numbers of these tensors are not in use for now; those that do not rest on disk are left alone."""
    for tensor in tensors:
        mapping = _mapping(tensor)
        if mapping is None:
            continue
        first = tensor.data_ptr() - tensor.untyped_storage().data_ptr()
        last = first + tensor.numel() * tensor.element_size()
        first = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages only: others have a part in the rest
        if last < len(mapping):
            last = last // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first and hasattr(mmap, "MADV_DONTNEED"):  # elsewhere the system finds out by itself
            mapping.madvise(mmap.MADV_DONTNEED, first, last - first)


def pieces(stack: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The rows of a stack [M, ...] and which they are: all at once, or some at a time where they rest on disk."""
    if not rests(stack):
        yield slice(0, len(stack)), stack
        return
    for first in range(0, len(stack), ROWS):
        rows = slice(first, min(first + ROWS, len(stack)))
        yield rows, stack[rows]
        release(stack[rows])
