"""Where a run computes, and what differs there."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from fedquilt.errors import FedquiltError

# How dense products are computed: in single precision, or with fewer bits on an accelerator.
Precision = Literal["float32", "mixed"]


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


def has_kernels(tensor: Tensor) -> bool:
    """Whether our kernels (`fedquilt.nn.kernels`) can work on it: on an accelerator, where Triton is, as it is on Linux."""
    return tensor.is_cuda and _triton()


@cache
def _triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def recording(tensor: Tensor) -> bool:
    """Whether what is done to `tensor` now is only recorded, to be replayed later (see `fedquilt.replay`)."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
