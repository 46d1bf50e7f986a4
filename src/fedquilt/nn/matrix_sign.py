"""Functions of symmetric matrices by products alone, in a fixed number of steps.

A solver for eigenvalues makes an accelerator wait for its host, so that a round with one cannot be captured.
"""

from __future__ import annotations

import torch
from torch import Tensor

SQUARINGS = 12
BETWEEN = (
    4  # squarings without a division: a trace of one falls to n^-(2^BETWEEN) at most, which is a number for n < 10^19
)
CONVERGED = 1e-8  # from here one more step reaches the precision of doubles
TINY = 1e-300


def largest_eigenvalue(matrix: Tensor) -> Tensor:
    """The largest eigenvalue of matrices without negative ones: [..., n, n] float64 -> [...].

    With G of trace one, G^p for p = 2^SQUARINGS by squaring, and the eigenvalue as tr(G^(p+1)) / tr(G^p). What that lacks is at
    most (n - 1) / (e p) of it.
    """
    trace = _trace(matrix)
    gram = matrix / trace.clamp_min(TINY)[..., None, None]
    power = gram
    for step in range(1, SQUARINGS + 1):
        power = power @ power
        if step % BETWEEN == 0:
            power = power / _trace(power).clamp_min(TINY)[..., None, None]
    return (power * gram).sum((-2, -1)) * trace  # power has trace one: SQUARINGS is a multiple of BETWEEN


def matrix_sign(matrix: Tensor, closest: float) -> Tensor:
    """The sign of symmetric matrices whose eigenvalues lie between -1 and 1: [..., n, n] float64 -> the same.

    An eigenvalue from `closest` up in size becomes 1 or -1; a smaller one keeps its sign and is somewhere in between.

    Newton and Schulz's step x (3 - x^2) / 2, of s x instead of x: with s^2 = 3 / (1 + l + l^2) the smallest eigenvalue l and
    the largest, 1, get the same value, which is the new l: 2.6 times the old one as long as it is small.
    """
    x, low, last = matrix.reshape(-1, *matrix.shape[-2:]), closest, False
    while not last:
        last = 1.0 - low < CONVERGED
        scale = (3.0 / (1.0 + low + low * low)) ** 0.5
        x = torch.baddbmm(x, x @ x, x, beta=1.5 * scale, alpha=-0.5 * scale**3)
        low = 0.5 * scale * low * (3.0 - (scale * low) ** 2)
    return x.view(matrix.shape)


def _trace(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
