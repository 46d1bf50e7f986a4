"""Uploads as whole numbers modulo 2^64, so that masks can hide them and sums of them are exact.

A number x becomes round(2^b x). The bits b behind the point are as many as leave room for the largest sum: that of all
clients, each with the largest count times the largest weight. Negative numbers are stored as 2^64 minus their size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fedquilt.messages.message import Message, TensorSpec, declared, dense

MAX_COUNT = 2**20  # no count that a client states is larger
WORD_BYTES = 8
_SUM_BITS = 62  # of the largest sum; one more is its sign, and one is spare
_ROUNDING = 1.0 + 1e-6

Vector = np.ndarray  # [P] uint64


class FixedPoint:
    """How the clients of a run write their uploads as whole numbers.

    Args:
        clients: the most clients that are added up.
        range: the largest size of a number in an upload that is no count.
    """

    def __init__(self, clients: int, range: float) -> None:
        self.clients, self.range = clients, range
        self.bits = _SUM_BITS - math.ceil(math.log2(clients * range * MAX_COUNT))

    @property
    def step(self) -> float:
        """The distance of two numbers that can be told apart."""
        return 2.0**-self.bits

    def clipped(self, upload: Message, specs: Sequence[TensorSpec]) -> tuple[Message, int]:
        """An upload with counts in [0, MAX_COUNT] and other numbers in [-range, range], and how many were outside."""
        out: Message = {}
        outside = 0
        for name, value in upload.items():
            spec, tensor = declared(specs, name), dense(value).double()
            lowest, highest = (0.0, float(MAX_COUNT)) if spec is not None and spec.count else (-self.range, self.range)
            out[name] = tensor.clamp(lowest, highest)
            outside += int(((tensor < lowest) | (tensor > highest)).sum())
        return out, outside

    def encode(self, summands: Mapping[str, Tensor], clipped: int) -> Vector:
        """One client's summands [1, ...] and how many numbers were clipped, as one vector [P + 1]."""
        flat = [summands[name].double().flatten().numpy() for name in sorted(summands)]
        numbers = np.rint(np.concatenate([*flat, np.zeros(0)]) / self.step).astype(np.int64)
        return np.concatenate([numbers, np.array([clipped], np.int64)]).view(np.uint64)

    def decode(self, total: Vector, form: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], int]:
        """The sums [...] of summands of the form [1, ...], float64, and how many numbers were clipped.

        ValueError where no clients can have had these: one of them did not keep to the protocol.
        """
        numbers = total.view(np.int64)
        sums, first = {}, 0
        for name in sorted(form):
            shape = form[name].shape[1:]
            last = first + shape.numel()
            sums[name] = torch.from_numpy(numbers[first:last] * self.step).view(shape)
            first = last
        clipped = int(numbers[first])
        largest = self.clients * self.range * MAX_COUNT * _ROUNDING
        if not 0 <= clipped <= self.clients * first or any(bool((s.abs() > largest).any()) for s in sums.values()):
            raise ValueError("the sum is larger than any sites can have sent")
        return sums, clipped


def vector_length(form: Mapping[str, Tensor]) -> int:
    """P + 1: how many whole numbers summands of the form [1, ...] take."""
    return sum(value.shape[1:].numel() for value in form.values()) + 1
