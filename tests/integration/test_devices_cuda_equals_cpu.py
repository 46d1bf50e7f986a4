"""Operations with code of their own for accelerators give what the CPU gives. Skipped where there is no accelerator."""

from __future__ import annotations

import math

import pytest
import torch

from fedquilt.methods.averaging import patch_mean
from fedquilt.nn import latent_graph
from fedquilt.nn.kernel_average import factor, shares
from support.clients import assert_near, numbers

on_accelerator = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an accelerator, and there is none here"
)


@on_accelerator
@pytest.mark.parametrize("count", [3, 60, 500])
def test_factors_of_similarity_are_the_cpus(count: int) -> None:
    """What they amount to: how many columns they take may differ."""
    centres = torch.nn.functional.normalize(numbers(0, 5, 16), dim=1)
    unit = torch.nn.functional.normalize(centres[torch.arange(count) % 5] + 0.005 * numbers(1, count, 16), dim=1)
    told, rest = factor(unit, 3.0)
    there, left = (t.cpu() for t in factor(unit.cuda(), 3.0))
    assert_near(there @ there.T + left.diag(), told @ told.T + rest.diag(), 3e-4)
    own = torch.arange(count)
    for here, far in zip(shares(unit, unit, 3.0, own), shares(unit.cuda(), unit.cuda(), 3.0, own.cuda()), strict=True):
        assert torch.isfinite(far).all()
        assert here.dtype == far.dtype


@on_accelerator
@pytest.mark.parametrize(("n", "k"), [(9, 1), (64, 3), (257, 8), (1000, 20)])
@pytest.mark.parametrize("kind", ["ties", "normal", "padded"])
def test_the_largest_are_the_cpus(kind: str, n: int, k: int) -> None:
    scores = numbers(n, 3, 50, n)
    if kind != "normal":
        scores = scores.mul(2).round() + 0.0  # zeros of one sign
    if kind == "padded":
        scores[:, :, n // 2 :] = -math.inf
    best, place = (t.cpu() for t in latent_graph.largest(scores.cuda(), k))
    expected, there = latent_graph.largest(scores, k)
    assert torch.equal(best.sort(-1).values, expected.sort(-1).values)
    known = expected.sort(-1).values[..., 0] > -math.inf
    assert torch.equal(place.sort(-1).values[known], there.sort(-1).values[known])


@on_accelerator
@pytest.mark.parametrize("rest", [(), (7,), (5, 3)], ids=str)
def test_patches_are_averaged_as_on_a_cpu(rest: tuple[int, ...]) -> None:
    stack, seen = numbers(0, 6, 4, *rest), numbers(1, 6, 4).abs()
    seen[2] = 0.0
    assert_near(patch_mean(stack.cuda(), seen.cuda()).cpu(), patch_mean(stack, seen), 1e-5)
    if rest:
        turned, other = stack.transpose(1, -1), numbers(2, 6, rest[-1]).abs()
        assert_near(patch_mean(turned.cuda(), other.cuda()).cpu(), patch_mean(turned, other), 1e-5)
