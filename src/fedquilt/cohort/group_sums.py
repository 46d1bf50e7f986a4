"""Sum rows by group in a fixed order, so that results are reproducible bit by bit, on an accelerator too."""

from __future__ import annotations

import torch
from torch import Tensor


class Groups:
    """T rows, each in one of G groups.

    On an accelerator `index_add` adds atomically, in an order that changes from run to run. Here rows are sorted by group,
    and each group is summed in order.

    Attributes:
        index: [T] int64, the group of each row.
        counts: [G] int64, the number of rows of each group.
    """

    def __init__(self, index: Tensor, groups: int) -> None:
        self.index = index
        self.counts = torch.bincount(index, minlength=groups)
        self.order = index.argsort(stable=True)

    def sum(self, values: Tensor) -> Tensor:
        """The sum of each group's rows, zero for an empty group: [T, ...] -> [G, ...]."""
        if values.is_cuda:
            out: Tensor = _SortedSum.apply(values, self)
            return out
        return values.new_zeros(len(self.counts), *values.shape[1:]).index_add(0, self.index, values)


class _SortedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values: Tensor, groups: Groups) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.groups = groups
        rows = values.flatten(1).index_select(0, groups.order)
        total = torch.segment_reduce(rows, "sum", lengths=groups.counts, axis=0, unsafe=True, initial=0.0)
        return total.view(-1, *values.shape[1:])

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return grad.index_select(0, ctx.groups.index), None
