"""Offload tensors to disk: client states that are not in use, where all states together would not fit into memory.

An offloaded tensor is a file that is mapped into memory. It is read and written like any other tensor; the operating
system holds the pages in use and writes the others to disk. `release_pages` tells it that some rows are not in use. The
file is deleted as soon as it is open, so nothing is left behind however the process ends. It is in the folder for
temporary files (TMPDIR).
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

from fedquilt.errors import MachineLimitError

THRESHOLD_BYTES = 2**30  # states are offloaded if those of all clients together are larger
CHUNK_ROWS = 256  # how many rows of an offloaded tensor are processed at a time
_SPARE_BYTES = 2**30  # left free on the disk

_mappings: dict[int, mmap.mmap] = {}  # by the address of the first byte


def offloaded_zeros(shape: tuple[int, ...], dtype: torch.dtype, what: str = "The clients' models") -> Tensor:
    """Create an offloaded tensor of zeros. Disk space is reserved now: running out of it later would kill the process.

    `what` it is of, for the error where there is too little disk.
    """
    size = max(1, math.prod(shape)) * torch.empty((), dtype=dtype).element_size()
    folder = tempfile.gettempdir()
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            if size + _SPARE_BYTES > shutil.disk_usage(folder).free:
                raise OSError
            os.ftruncate(file.fileno(), size)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError:
            held, free = sum(map(len, _mappings.values())), shutil.disk_usage(folder).free
            raise MachineLimitError(
                f"{what} need {(held + size) / 2**30:.1f} GiB on disk or more, and {folder} has only "
                f"{(held + free) / 2**30:.1f} GiB for them; set TMPDIR to a folder with more room, or use fewer clients or "
                "a smaller model."
            ) from None
        mapping = mmap.mmap(file.fileno(), size)
    array = np.frombuffer(mapping, dtype=np.uint8)
    tensor = torch.from_numpy(array).view(dtype)[: math.prod(shape)].view(shape)
    address = array.ctypes.data
    _mappings[address] = mapping
    weakref.finalize(array, _mappings.pop, address, None)
    return tensor


def empty_like(tensor: Tensor) -> Tensor:
    """An uninitialised tensor of the same shape and type: offloaded where `tensor` is, else on its device."""
    return offloaded_zeros(tuple(tensor.shape), tensor.dtype) if is_offloaded(tensor) else torch.empty_like(tensor)


def offloaded_copy(tensor: Tensor) -> Tensor:
    """An offloaded tensor with the same values."""
    out = offloaded_zeros(tuple(tensor.shape), tensor.dtype)
    for rows, chunk in row_chunks(out):
        chunk.copy_(tensor[rows])
    return out


def is_offloaded(tensor: Tensor) -> bool:
    """Whether the tensor is offloaded or a view of one that is."""
    return _mapping(tensor) is not None


def _mapping(tensor: Tensor) -> mmap.mmap | None:
    if not _mappings or tensor.device.type != "cpu":
        return None
    return _mappings.get(tensor.untyped_storage().data_ptr())


def release_pages(*tensors: Any) -> None:
    """Let the system reclaim the memory of offloaded tensors; their values stay on disk. Other tensors are ignored."""
    for tensor in tensors:
        mapping = _mapping(tensor)
        if mapping is None:
            continue
        first = tensor.data_ptr() - tensor.untyped_storage().data_ptr()
        last = first + tensor.numel() * tensor.element_size()
        first = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages only: the others hold other rows too
        if last < len(mapping):
            last = last // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED, first, last - first)


def moved_to_front(stack: Tensor, rows: Tensor) -> Tensor:
    """The rows [k], in rising order, of a stack [M, ...]: a copy; if it is offloaded, its first k rows, overwritten."""
    if not is_offloaded(stack):
        return stack[rows.to(stack.device)]
    for place, row in enumerate(rows.tolist()):
        if place != row:
            stack[place].copy_(stack[row])
        release_pages(stack[place : row + 1])
    return stack[: len(rows)]


def row_chunks(stack: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of a stack [M, ...] and their rows: `CHUNK_ROWS` rows at a time if it is offloaded, else all at once."""
    if not is_offloaded(stack):
        yield slice(0, len(stack)), stack
        return
    for first in range(0, len(stack), CHUNK_ROWS):
        rows = slice(first, min(first + CHUNK_ROWS, len(stack)))
        yield rows, stack[rows]
        release_pages(stack[rows])
