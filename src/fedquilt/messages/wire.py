"""The wire format: one client's message as safetensors bytes, never pickle.

A dense tensor is stored as it is. A sparse tensor is stored as ``name#values`` (float32) and ``name#kept`` (one bit per entry,
packed), or dense where that is smaller; its shape is in the header's metadata under ``sparse``.

`decode` reads untrusted bytes. It checks the whole header before it creates a tensor, so it never allocates more than a small
multiple of the received bytes. It raises ValueError on everything that `encode` does not write.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from fedquilt.messages.message import Message, Sparse, Value, dense

_VALUES, _KEPT = "#values", "#kept"
_METADATA, _SHAPES = "__metadata__", "sparse"
_LENGTH = struct.Struct("<Q")
HEADER_LIMIT = 2**22  # bytes; enough for the names, shapes and offsets of some ten thousand tensors
RANK_LIMIT, SIZE_LIMIT = 16, 2**48  # the most axes of a tensor, and the most entries along one
# Bytes per entry of each dtype that may be sent, by its name in safetensors.
_ENTRY_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


def encode(message: Mapping[str, Value]) -> bytes:
    """Encode one client's message as bytes. Tensors have no client axis; a `Sparse` has a leading axis of one."""
    tensors: dict[str, Tensor] = {}
    shapes: dict[str, list[int]] = {}
    for name, value in message.items():
        if name.endswith((_VALUES, _KEPT)):
            raise ValueError(f"'{name}' cannot be sent: its ending is kept for the parts of sparse tensors")
        if not isinstance(value, Sparse):
            tensors[name] = _copy(dense(value))
            continue
        one = value.tensor[0].detach().cpu()
        shapes[name] = list(one.shape)
        flat = one.flatten()
        kept = flat != 0
        if int(value.bytes_each()[0]) < flat.numel() * 4:
            tensors[name + _VALUES] = flat[kept].contiguous()
            tensors[name + _KEPT] = torch.from_numpy(np.packbits(kept.numpy()))
        else:
            tensors[name] = _copy(flat)
    return save(tensors, metadata={_SHAPES: json.dumps(shapes)})


def _copy(tensor: Tensor) -> Tensor:
    """Return a contiguous copy, because safetensors refuses tensors that share memory."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def decode(data: bytes) -> Message:
    """Decode a message that `encode` wrote. Raises ValueError on anything else."""
    try:
        metadata = _checked_metadata(data)
        shapes = _parse_json(metadata.get(_SHAPES, "{}"))
        tensors = load(data)
        _check_booleans(tensors)
        return _assemble(tensors, shapes)
    except Exception as error:
        raise ValueError(f"not a message: {error}") from error


# -- the header ---------------------------------------------------------------------------------------------------------------


def _checked_metadata(data: bytes) -> dict[str, str]:
    """Check every entry of the header and return its metadata.

    The layout is: the header's length (8 bytes, little-endian), the header (JSON), the tensors' bytes. Together the tensors
    have to cover the rest of the data, without holes and without overlaps.
    """
    if len(data) < _LENGTH.size:
        raise ValueError("it is too short")
    (length,) = _LENGTH.unpack_from(data)
    start = _LENGTH.size + length
    if length > HEADER_LIMIT or start > len(data):
        raise ValueError("its header is too long")
    header = _parse_json(data[_LENGTH.size : start].decode("utf-8"))
    if not isinstance(header, dict):
        raise ValueError("its header is not a table")
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("its metadata is not a table of texts")
    end = 0
    for first, last in sorted(_checked_offsets(name, entry) for name, entry in header.items()):
        if first != end:
            raise ValueError("its tensors overlap or leave a hole")
        end = last
    if start + end != len(data):
        raise ValueError("its tensors do not end where the data ends")
    return metadata


def _checked_offsets(name: str, entry: Any) -> tuple[int, int]:
    """Return the first and the last offset of a tensor's bytes, after a check that they fit its dtype and shape."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"'{name}' has no dtype, shape and offsets, or more than these")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ENTRY_BYTES:
        raise ValueError(f"'{name}' has a dtype that is not sent")
    if not _is_shape(offsets) or len(offsets) != 2:
        raise ValueError(f"'{name}' has no offsets")
    if not _is_shape(shape):
        raise ValueError(f"'{name}' has no shape")
    first, last = offsets
    if last - first != math.prod(shape) * _ENTRY_BYTES[dtype]:
        raise ValueError(f"the offsets of '{name}' do not fit its shape")
    return first, last


def _is_shape(value: object) -> bool:
    """Whether a value is a short list of whole numbers that are not negative and not huge."""
    return (
        isinstance(value, list)
        and len(value) <= RANK_LIMIT
        and all(type(size) is int and 0 <= size < SIZE_LIMIT for size in value)
    )


def _parse_json(text: str) -> Any:
    """Parse JSON; refuse repeated names, NaN and infinities."""
    return json.loads(text, object_pairs_hook=_table, parse_constant=_refuse_constant)


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name is there twice")
    return table


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


# -- the tensors --------------------------------------------------------------------------------------------------------------


def _check_booleans(tensors: Mapping[str, Tensor]) -> None:
    """Refuse a boolean that is neither 0 nor 1: PyTorch does not expect one."""
    for name, tensor in tensors.items():
        if tensor.dtype == torch.bool and bool((tensor.view(torch.uint8) > 1).any()):
            raise ValueError(f"'{name}' has entries that are neither true nor false")


def _assemble(tensors: dict[str, Tensor], shapes: object) -> Message:
    """Rebuild sparse tensors from their parts, after a check that the parts fit the shapes that the sender states."""
    if not isinstance(shapes, dict):
        raise ValueError("the shapes of its sparse tensors are not a table")
    message: Message = {}
    for name, shape in shapes.items():
        if not _is_shape(shape):
            raise ValueError(f"'{name}' has no shape")
        entries = math.prod(shape)
        if name in tensors:
            flat = tensors.pop(name)
        elif name + _VALUES in tensors and name + _KEPT in tensors:
            values, packed = tensors.pop(name + _VALUES), tensors.pop(name + _KEPT)
            # Checked before unpacking, so that no more than 32 times the packed bytes is allocated.
            if packed.dtype != torch.uint8 or packed.shape != ((entries + 7) // 8,):
                raise ValueError(f"the positions of '{name}' do not fit its shape")
            kept = torch.from_numpy(np.unpackbits(packed.numpy())[:entries].astype(bool))
            if values.shape != (int(kept.sum()),):
                raise ValueError(f"the positions of '{name}' do not fit its values")
            flat = torch.zeros(entries).masked_scatter_(kept, values)
        else:
            raise ValueError(f"'{name}' is announced but not there")
        message[name] = Sparse(flat.view(1, *shape))
    for name in tensors:
        if name.endswith((_VALUES, _KEPT)):
            raise ValueError(f"'{name}' is there but not announced")
    return message | tensors
