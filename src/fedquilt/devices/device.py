"""The device that a run computes on, its precision and its threads."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from fedquilt.errors import FedquiltError

# The precision of dense products: single, or with fewer bits on an accelerator.
Precision = Literal["float32", "mixed"]
_DEVICE = re.compile(r"cpu|mps|cuda(:(0|[1-9][0-9]?))?")


@contextmanager
def computing_in(precision: Precision) -> Iterator[None]:
    """Compute the dense products of a `with` block in this precision; all else, including their accumulation, is float32.

    "mixed" rounds factors to TF32 (10 bits after the point) on an accelerator; on a CPU it is the same as "float32".
    """
    if precision == "float32":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Use `count` CPU threads in a `with` block; None leaves the number unchanged."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pick_device(name: str, asked: str = "--device") -> torch.device:
    """Return the device called `name`; "auto" is a CUDA device where there is one, else the CPU.

    `asked` is the option that names it, for error messages.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not _DEVICE.fullmatch(name):
        raise FedquiltError(f"There is no device '{name}'; use auto, cpu or cuda (cuda:1 for the second one), or mps.")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise FedquiltError(f"This machine has no CUDA device that PyTorch can use; use {asked} cpu or auto.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise FedquiltError(f"This machine has no device '{name}'; the last one is cuda:{last}.")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise FedquiltError(f"This machine has no MPS device that PyTorch can use; use {asked} cpu or auto.")
    return device


def has_kernels(tensor: Tensor) -> bool:
    """Whether the Triton kernels (`fedquilt.devices.kernels`) can run on the tensor: on CUDA, where Triton is installed."""
    return tensor.is_cuda and _triton()


@cache
def _triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def is_capturing(tensor: Tensor) -> bool:
    """Whether operations on the tensor are captured in a CUDA graph now instead of executed (`fedquilt.devices.cuda_graph`)."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def on_host(tensor: Tensor) -> bool:
    """Whether the host has the tensor's values. A read of another one makes it wait, and ends a capture."""
    return tensor.device.type == "cpu"
