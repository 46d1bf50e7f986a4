"""Dropout whose masks depend on the client and the step, not on the cohort (see `fedquilt.cohort.draws`)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.cohort.draws import Draws, Placed
from fedquilt.cohort.rows import Rows


@dataclass(frozen=True)
class Dropout:
    """Dropout for one training step of a cohort.

    Attributes:
        rate: the share of entries set to zero; the others are divided by (1 - rate).
        keys: [M] int64, the random key of each client (see `fedquilt.cohort.draws.client_keys`).
        step: the training step, counted from the step that the keys were advanced to (see `fedquilt.cohort.draws.advanced`);
            in a training this is the epoch within the round.
    """

    rate: float
    keys: Tensor
    step: int

    @property
    def draws(self) -> Draws:
        """This step's random numbers."""
        return Draws(self.keys, self.step)

    @property
    def bits(self) -> int:
        """Random bits per entry: 8 if the rate is a multiple of 1/256 (four entries per 32-bit word), else 16."""
        return 8 if (self.rate * 256).is_integer() else 16

    @property
    def scale(self) -> float:
        """The factor that preserves the expectation, for entries that are kept: 1 / (1 - the rate rounded to `bits` bits)."""
        return 1.0 / (1.0 - round(self.rate * 2**self.bits) / 2**self.bits)

    def keep(self, rows: Placed, width: int, layer: int) -> Tensor:
        """Draw which entries are kept at this layer in this step: [R, width] float32 of ones and zeros."""
        bits = self.bits
        x = self.draws.words(rows, -(-width * bits // 32), layer)
        # Integers 0 .. 2^bits - 1, or the same range around zero; an entry is kept if its number is at least `drop`.
        # Clamping a float is one vectorised pass; a comparison that writes booleans is several times slower on the CPU.
        value = x.view(torch.uint8 if bits == 8 else torch.int16)[:, :width].float()
        drop = round(self.rate * 2**bits) - (0 if bits == 8 else 2**15)
        return value.sub_(drop - 1).clamp_(0.0, 1.0)

    def mask(self, rows: Placed, width: int, layer: int) -> Tensor:
        """[R, width] float32: the factor of each entry, zero or 1 / (1 - rate)."""
        return self.keep(rows, width, layer).mul_(self.scale)

    def __call__(self, rows: Rows, h: Tensor, layer: int) -> Tensor:
        """ReLU, then dropout: [R, H] -> [R, H]."""
        if self.rate == 0.0:
            return torch.relu(h)
        dropped: Tensor = _ReluDropout.apply(h, self.keep(rows, h.shape[1], layer), self.scale)
        return dropped


class _ReluDropout(torch.autograd.Function):
    """relu(h) * keep * scale. Backward needs only the output, which is positive exactly where the gradient passes."""

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
