"""Averages from sums over clients, for servers that see nothing else: what each client adds, and what the server divides."""

from __future__ import annotations

from torch import Tensor

from fedquilt.messages.message import Message, dense

# Named tensors: `State` of `fedquilt.methods.base`, which imports nothing from here.
Sums = dict[str, Tensor]


def weighted_summands(uploads: Message, count: str) -> Sums:
    """n_m w_m for every upload w, and n_m itself, the upload called `count`: [M, ...] float64."""
    numbers = dense(uploads[count]).double()
    return {
        name: numbers if name == count else along_axis(numbers, dense(value).double(), 0) * dense(value).double()
        for name, value in uploads.items()
    }


def mean_of_sums(sums: Sums, count: str) -> Sums:
    """sum_m n_m w_m / sum_m n_m for everything but the count: [...] float32."""
    return {name: (value / sums[count]).float() for name, value in sums.items() if name != count}


def along_axis(weight: Tensor, like: Tensor, axis: int) -> Tensor:
    """A vector, or a stack of vectors over the axes before, shaped to multiply `like` along `axis`."""
    after = like.dim() - axis - 1
    return weight.view(*weight.shape, *[1] * after)
