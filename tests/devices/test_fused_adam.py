"""The step of the fused operator, the step of public operators, and torch.optim.Adam's are the same."""

from __future__ import annotations

import pytest
import torch

from fedquilt.devices.fused_adam import adam_update
from support.clients import assert_near

SHAPES = ((3, 4), (5,), ())


def numbers(seed: int) -> list[torch.Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=stream) for shape in SHAPES]


def updated(weight_decay: float, steps: int) -> list[torch.Tensor]:
    weights, first, second = numbers(0), [torch.zeros(s) for s in SHAPES], [torch.zeros(s) for s in SHAPES]
    for step in range(1, steps + 1):
        count = [torch.tensor(float(step))] * len(SHAPES)
        adam_update(weights, numbers(step), first, second, count, 0.02, (0.9, 0.999), weight_decay, 1e-8)
    return [*weights, *first, *second]


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_public_operators_do_what_the_fused_one_does(monkeypatch: pytest.MonkeyPatch, weight_decay: float) -> None:
    fused = updated(weight_decay, 7)
    monkeypatch.delattr(torch, "_fused_adam_")
    for mine, theirs in zip(updated(weight_decay, 7), fused, strict=True):
        assert_near(mine, theirs, 1e-6)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "public"])
def test_a_step_is_that_of_the_library(monkeypatch: pytest.MonkeyPatch, fused: bool) -> None:
    weights = [w.requires_grad_() for w in numbers(0)]
    adam = torch.optim.Adam(weights, lr=0.02, weight_decay=0.1, foreach=False)
    for step in range(1, 5):
        for weight, grad in zip(weights, numbers(step), strict=True):
            weight.grad = grad
        adam.step()
    if not fused:
        monkeypatch.delattr(torch, "_fused_adam_")
    for mine, theirs in zip(updated(0.1, 4), weights, strict=False):
        assert_near(mine, theirs.detach(), 1e-6)
