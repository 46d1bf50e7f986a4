"""Triton kernels for CUDA devices: operations that no library kernel does in one pass. PyTorch for CUDA includes Triton.

What grows (clients, rows) lies on a grid's first axis, which may have 2^31 - 1 programs; the others may have 65,535. Places in
memory are 64-bit numbers: ten million rows of 256 columns are more than 2^31 numbers.
"""

# mypy: disallow-untyped-defs=False
from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
MAX_COLUMNS = 128  # the most columns that one warp sums at a time


@triton.jit
def _adam(
    weight, grad, first, second, length, root, rates, entries, blocks, lr, decay, new1, new2, eps,
    EACH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(0) // blocks
    at = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = at < entries
    at = client.to(tl.int64) * entries + at
    w = tl.load(weight + at, mask=inside)
    g = tl.load(grad + at, mask=inside) + decay * w
    m = tl.load(first + at, mask=inside)
    v = tl.load(second + at, mask=inside)
    m += new1 * (g - m)
    v += new2 * (g * g - v)
    rate = lr
    if EACH:
        rate = tl.load(rates + client)
    w -= rate * tl.load(length + client) * m / (tl.sqrt(v) * tl.load(root + client) + eps)
    tl.store(weight + at, w, mask=inside)
    tl.store(first + at, m, mask=inside)
    tl.store(second + at, v, mask=inside)


class Adam:
    """Adam steps in place, one kernel each. Every client has its own step count and may have its own learning rate."""

    def __init__(self, step: Tensor, betas: tuple[float, float], epsilon: float) -> None:
        """`step` [M] is the number of the step that each client takes."""
        self.clients, self.betas, self.epsilon = len(step), betas, epsilon
        # 1 - beta^t; computed by expm1 in double precision, because it cancels in single precision at small t.
        one, two = (-torch.expm1(step.double() * math.log(beta)) for beta in betas)
        self.length, self.root = one.reciprocal().float(), two.rsqrt().float()

    def __call__(
        self, weight: Tensor, grad: Tensor, first: Tensor, second: Tensor, lr: float | Tensor, decay: float
    ) -> None:
        """Take one step of one weight. Shapes: all [M, ...] contiguous; a learning rate for each client is [M]."""
        entries = weight.numel() // self.clients
        each = isinstance(lr, Tensor)
        rates, rate = (lr, 0.0) if each else (self.root, lr)
        new1, new2 = (1.0 - beta for beta in self.betas)
        blocks = triton.cdiv(entries, BLOCK)
        with torch.cuda.device(weight.device):
            _adam[(blocks * self.clients,)](
                weight, grad, first, second, self.length, self.root, rates, entries, blocks, rate, decay, new1, new2,
                self.epsilon, EACH=each, BLOCK=BLOCK,
            )  # fmt: skip


@triton.jit
def _sum_rows(offsets, columns, weights, x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(tl.load(offsets + row), tl.load(offsets + row + 1)):
        column = tl.load(columns + i).to(tl.int64)
        total += tl.load(weights + i) * tl.load(x + column * width + at, mask=inside, other=0.0)
    tl.store(out + row.to(tl.int64) * width + at, total, mask=inside)


def sum_rows(offsets: Tensor, columns: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    """Compute a sparse product: at every row r, sum_i weights_i x[columns_i] over i = offsets_r .. offsets_{r+1} - 1.

    One group of threads sums each row in order, so the result is deterministic. At 128 columns it takes 0.4 to 0.8 of the
    library's time.

    Shapes: offsets [R + 1], columns and weights [E], x [K, H] float32 -> [R, H].
    """
    x = x.contiguous()
    rows, width = len(offsets) - 1, x.shape[1]
    out = torch.empty(rows, width, device=x.device)
    block = min(MAX_COLUMNS, triton.next_power_of_2(width))
    with torch.cuda.device(x.device):
        _sum_rows[(rows, triton.cdiv(width, block))](offsets, columns, weights, x, out, width, BLOCK=block, num_warps=1)
    return out
