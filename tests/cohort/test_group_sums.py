"""Sums by group: the sorted sum of accelerators equals the one of CPUs, empty groups included, and so do the gradients."""

from __future__ import annotations

import pytest
import torch

from fedquilt.cohort.group_sums import Groups, _SortedSum
from support.clients import assert_near, numbers

INDEX = torch.tensor([3, 0, 3, 1, 0, 3, 5])


@pytest.mark.parametrize("rest", [(1,), (4,), (2, 3)], ids=str)
def test_sums_and_gradients(rest: tuple[int, ...]) -> None:
    groups = Groups(INDEX, 7)
    assert groups.counts.tolist() == [2, 1, 0, 3, 0, 1, 0]
    values, grad = numbers(0, len(INDEX), *rest).requires_grad_(), numbers(1, 7, *rest)
    expected = torch.stack([values[g == INDEX].sum(0) for g in range(7)])
    (slope,) = torch.autograd.grad(expected, values, grad)
    for total in (groups.sum(values), _SortedSum.apply(values, groups)):
        assert_near(total.detach(), expected.detach())
        assert torch.equal(torch.autograd.grad(total, values, grad)[0], slope)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator, and there is none here")
def test_an_accelerator_gives_the_same_bits_every_time() -> None:
    values, index = (
        numbers(0, 5000, 16).cuda(),
        torch.randint(0, 40, (5000,), generator=torch.Generator().manual_seed(1)),
    )
    groups = Groups(index.cuda(), 40)
    first = groups.sum(values)
    assert_near(first.cpu(), Groups(index, 40).sum(values.cpu()), 1e-4)
    assert all(torch.equal(groups.sum(values), first) for _ in range(20))
