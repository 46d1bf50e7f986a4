"""How one client's message is written as bytes: safetensors, never pickle.

A dense tensor is stored as it is. A sparse one becomes ``name#values`` (float32) and ``name#kept`` (one bit an entry,
packed), or is stored dense where that is smaller; its shape travels in the header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from fedquilt.privacy.crossing import Message, Sparse, Value

_VALUES, _KEPT = "#values", "#kept"


def encode(message: Mapping[str, Value]) -> bytes:
    """One client's message (no client axis; a `Sparse` keeps a leading axis of one) as bytes."""
    tensors: dict[str, Tensor] = {}
    shapes: dict[str, list[int]] = {}
    for name, value in message.items():
        if not isinstance(value, Sparse):
            tensors[name] = value.detach().cpu().contiguous()
            continue
        one = value.tensor[0].detach().cpu()
        shapes[name] = list(one.shape)
        flat = one.flatten()
        kept = flat != 0
        if int(value.bytes_each()[0]) < flat.numel() * 4:
            tensors[name + _VALUES] = flat[kept].contiguous()
            tensors[name + _KEPT] = torch.from_numpy(np.packbits(kept.numpy()))
        else:
            tensors[name] = flat
    return save(tensors, metadata={"sparse": json.dumps(shapes)})


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
        except Exception as error:
            raise ValueError(f"not a message: {error}") from error
    message: Message = {n: t for n, t in tensors.items() if not n.endswith((_VALUES, _KEPT)) and n not in shapes}
    for name, shape in shapes.items():
        entries = int(np.prod(shape))
        if name in tensors:
            flat = tensors[name]
        elif name + _VALUES in tensors and name + _KEPT in tensors:
            kept = torch.from_numpy(np.unpackbits(tensors[name + _KEPT].numpy())[:entries].astype(bool))
            values = tensors[name + _VALUES]
            if len(kept) != entries or int(kept.sum()) != len(values):
                raise ValueError(f"not a message: the positions of '{name}' do not fit its values")
            flat = torch.zeros(entries).masked_scatter_(kept, values)
        else:
            raise ValueError(f"not a message: '{name}' is announced but not there")
        message[name] = Sparse(flat.view(1, *shape))
    return message
