"""Dropout whose randomness belongs to the client.

The mask of client i in step s at layer l is a hash of (seed, i, s, l, position): a few integer operations, no state, the
same on every device, in every cohort, and after a resume.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.cohort import Cohort
from fedquilt.randomness import derive
from fedquilt.rows import Rows

_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, as a signed 64-bit number
_MIX = (-4658895280553007687, -7723592293110705685)  # splitmix64's multipliers
_LOW = 0x7FEB352D  # lowbias32's multipliers
_HIGH = -2073254261  # 0x846CA68B
_LAYERS = 64  # layers a step may have


def _mix64(x: Tensor) -> Tensor:
    """splitmix64's finaliser on int64 (shifts made logical by masking)."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _MIX[0]
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _MIX[1]
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@dataclass(frozen=True)
class Dropout:
    """Dropout for one training step of a cohort.

    Attributes:
        rate: the share of entries set to zero; the others are divided by (1 - rate).
        keys: [M] int64, a number that belongs to each client (see `client_keys`).
        step: the client's training step: round * epochs + epoch.
    """

    rate: float
    keys: Tensor
    step: int

    @property
    def bits(self) -> int:
        """Random bits an entry: eight where they express the rate exactly (four entries a 32-bit word), else sixteen."""
        return 8 if (self.rate * 256).is_integer() else 16

    @property
    def scale(self) -> float:
        """What survivors are multiplied with, so that the expectation stays: 1 / (1 - the rate in `bits` bits)."""
        return 1.0 / (1.0 - round(self.rate * 2**self.bits) / 2**self.bits)

    def keep(self, rows: Rows, width: int, layer: int) -> Tensor:
        """[R, width] float32 of ones and zeros: which entries survive at this layer in this step."""
        bits = self.bits
        words = -(-width * bits // 32)
        offset = (self.step * _LAYERS + layer + 1) * _GOLDEN
        key = _mix64(self.keys + ((offset + 2**63) % 2**64 - 2**63))  # wrapped to a signed 64-bit number
        low, high = key.to(torch.int32), (key >> 32).to(torch.int32)
        column = torch.arange(words, device=key.device, dtype=torch.int32)
        counter = rows.position.to(torch.int32) * words
        x = (counter + low[rows.client]).unsqueeze(1) + column
        x ^= (x >> 16) & 0xFFFF
        x *= _LOW
        x ^= high[rows.client].unsqueeze(1)  # two keyed words: streams of different clients and steps never run along
        x ^= (x >> 15) & 0x1FFFF
        x *= _HIGH
        x ^= (x >> 16) & 0xFFFF
        # Whole numbers 0 .. 2^bits - 1, or half that range around zero; at least `drop` survives. Clamping a float is
        # one vectorised pass; a comparison that writes booleans is several times slower on the CPU.
        value = x.view(torch.uint8 if bits == 8 else torch.int16)[:, :width].float()
        drop = round(self.rate * 2**bits) - (0 if bits == 8 else 2**15)
        return value.sub_(drop - 1).clamp_(0.0, 1.0)

    def __call__(self, rows: Rows, h: Tensor, layer: int) -> Tensor:
        """ReLU, then dropout: [R, H] -> [R, H]."""
        if self.rate == 0.0:
            return torch.relu(h)
        dropped: Tensor = _ReluDropout.apply(h, self.keep(rows, h.shape[1], layer), self.scale)
        return dropped


class _ReluDropout(torch.autograd.Function):
    """relu(h) * keep * scale. What survives is what is positive after it, so the output itself is all that is kept."""

    @staticmethod
    def forward(ctx, h: Tensor, keep: Tensor, scale: float) -> Tensor:  # type: ignore[no-untyped-def]
        out = torch.relu(h).mul_(keep).mul_(scale)
        ctx.save_for_backward(out)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        (out,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, out, 0.0).mul_(ctx.scale), None, None


def client_keys(seed: int, cohort: Cohort) -> Tensor:
    """[M] int64: a number for each client of the cohort, from the seed and the client's id alone."""
    keys = [derive(seed, "client", int(i), "dropout") for i in cohort.ids]
    return torch.tensor(keys, dtype=torch.int64, device=cohort.device)
