"""The meter counts tensors and arrays while they live, and nothing else."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

from fedquilt.devices.memory_meter import MemoryMeter

MB = 10**6


def test_tensors_count_until_they_are_freed_views_and_what_was_there_before_do_not() -> None:
    before = torch.ones(MB)
    with MemoryMeter() as meter:
        kept = before + 1.0  # 4 MB
        views = [kept[:10], kept.view(10, -1), before[5:]]
        temporary = kept * 2.0  # 4 MB
        del temporary
        kept.add_(1.0)
        other = torch.zeros(MB // 2)  # 2 MB
    assert meter.live == pytest.approx(6 * MB, rel=0.05)
    assert meter.peak == pytest.approx(8 * MB, rel=0.05)
    del kept, views, other
    assert meter.live < 0.2 * MB


def test_what_autograd_keeps_counts() -> None:
    weight = torch.ones(1000, 1000, requires_grad=True)
    with MemoryMeter() as meter:
        hidden = torch.relu(weight * 2.0)  # 8 MB: the product and its positive part
        (grad,) = torch.autograd.grad((hidden * hidden).sum(), [weight])
    assert 16 * MB <= meter.peak <= 25 * MB
    assert meter.live == pytest.approx(8 * MB, rel=0.1)  # hidden and the gradient
    assert grad.shape == weight.shape


def test_arrays_count_also_where_a_tensor_shares_them() -> None:
    with MemoryMeter() as meter:
        array = np.zeros(MB // 8)
        shared = torch.from_numpy(array)
        view = shared[: MB // 16]
        temporary = np.ones(MB)
        del temporary
        total = view.sum()
    assert meter.live == pytest.approx(1 * MB, rel=0.1)
    assert meter.peak == pytest.approx(9 * MB, rel=0.1)
    assert float(total) == 0.0


def test_it_can_be_entered_again_and_leaves_tracing_as_it_was() -> None:
    meter = MemoryMeter()
    with meter:
        first = torch.zeros(MB // 4)
    with meter:
        second = torch.zeros(MB // 4)
    assert meter.live == pytest.approx(2 * MB, rel=0.1)
    assert not tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        with MemoryMeter():
            pass
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()
    assert first.numel() == second.numel()
