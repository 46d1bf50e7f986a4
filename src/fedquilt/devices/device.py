"""Where a run computes, and what differs there."""

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

# How dense products are computed: in single precision, or with fewer bits on an accelerator.
Precision = Literal["float32", "mixed"]
_DEVICE = re.compile(r"cpu|mps|cuda(:(0|[1-9][0-9]?))?")  # what our methods can be computed on


@contextmanager
def computing_in(precision: Precision) -> Iterator[None]:
    """Dense products of a `with` block in this precision; everything else, sums of products among it, is float32.

    mixed: on an accelerator factors are rounded to TF32 (10 bits after the point); on a CPU it is the same as float32.
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
    """PyTorch with so many threads of the CPU for a `with` block; None leaves it as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pick_device(name: str, asked: str = "--device") -> torch.device:
    """`auto` is a CUDA device where there is one, else the CPU; the others are as PyTorch calls them.

    `asked` is how the user says which, for what is wrong with it.
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
    """Whether our Triton kernels (`fedquilt.devices.kernels`) can run on it: on CUDA, where Triton is installed."""
    return tensor.is_cuda and _triton()


@cache
def _triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def recording(tensor: Tensor) -> bool:
    """Whether what is done to `tensor` now is only recorded, to be replayed later (see `fedquilt.devices.cuda_graph`)."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
