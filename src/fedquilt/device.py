"""Where a run computes, and what differs there."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.errors import FedquiltError


def pick_device(name: str) -> torch.device:
    """`auto` is a CUDA device where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise FedquiltError(f"There is no device '{name}'; use auto, cpu or cuda.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise FedquiltError("This machine has no CUDA device that PyTorch can use; use --device cpu or auto.")
    return device


def recording(tensor: Tensor) -> bool:
    """Whether what is done to `tensor` now is only recorded, to be replayed later (see `fedquilt.replay`)."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
