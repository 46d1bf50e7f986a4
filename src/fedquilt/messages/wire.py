"""How one client's message is written as bytes: safetensors, never pickle.

A dense tensor is stored as it is. A sparse one becomes ``name#values`` (float32) and ``name#kept`` (one bit an entry,
packed), or is stored dense where that is smaller; its shape travels in the header.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from fedquilt.messages.message import Message, Sparse, Value, dense

_VALUES, _KEPT = "#values", "#kept"


def encode(message: Mapping[str, Value]) -> bytes:
    """One client's message (no client axis; a `Sparse` keeps a leading axis of one) as bytes."""
    tensors: dict[str, Tensor] = {}
    shapes: dict[str, list[int]] = {}
    for name, value in message.items():
        if name.endswith((_VALUES, _KEPT)):
            raise ValueError(f"'{name}' cannot be sent: its ending is kept for the parts of sparse tensors")
        if not isinstance(value, Sparse):
            tensors[name] = _own(dense(value))
            continue
        one = value.tensor[0].detach().cpu()
        shapes[name] = list(one.shape)
        flat = one.flatten()
        kept = flat != 0
        if int(value.bytes_each()[0]) < flat.numel() * 4:
            tensors[name + _VALUES] = flat[kept].contiguous()
            tensors[name + _KEPT] = torch.from_numpy(np.packbits(kept.numpy()))
        else:
            tensors[name] = _own(flat)
    return save(tensors, metadata={"sparse": json.dumps(shapes)})


def _own(tensor: Tensor) -> Tensor:
    """A copy with memory of its own: safetensors refuses tensors that share some."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def decode(data: bytes) -> Message:
    """The message that `encode` wrote. Raises ValueError on anything else."""
    import tempfile

    # safe_open reads the header's metadata, which the in-memory loader does not give back; it wants a file.
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            with safe_open(file.name, framework="pt") as opened:
                shapes = json.loads((opened.metadata() or {}).get("sparse", "{}"))
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
            return _assemble(tensors, shapes)
        except Exception as error:
            raise ValueError(f"not a message: {error}") from error


def _assemble(tensors: dict[str, Tensor], shapes: object) -> Message:
    """Put sparse tensors together again. `shapes` is what the sender claims; it is checked, not believed."""
    if not isinstance(shapes, dict):
        raise ValueError("the shapes of its sparse tensors are not a table")
    message: Message = {}
    for name, shape in shapes.items():
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"'{name}' has no shape")
        entries = math.prod(shape)
        if name in tensors:
            flat = tensors.pop(name)
        elif name + _VALUES in tensors and name + _KEPT in tensors:
            values, packed = tensors.pop(name + _VALUES), tensors.pop(name + _KEPT)
            # Before unpacking: what is made here is never more than the bytes that came can say.
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
