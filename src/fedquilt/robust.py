"""Robust averages: rules that a few hostile or broken clients cannot carry away, in place of the mean.

Each is for stacks [M, ...] of a tensor a client, and none looks at how much a client says it should count: who lies about its
weights lies about its size. With `votes` [M, P] only clients that vote for a patch (a row of the second axis) count in it;
where nobody does, all do.

- *median*, coordinate by coordinate (Yin et al., 2018): the middle one, or the mean of the two in the middle.
- *trimmed*, coordinate by coordinate (the same): the mean without the smallest and the largest `trim` share on each side.
- *clipped* (centred clipping, Karimireddy et al., 2021, around the median): c + mean_m min(1, r / |w_m - c|) (w_m - c), where
  c is the coordinate median and r is `clip` times the median of the clients' distances |w_m - c| from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedquilt import idle
from fedquilt.errors import FedquiltError
from fedquilt.methods.contract import Method, methods

Rule = Literal["median", "trimmed", "clipped"]
CHUNK = 2**24  # numbers sorted at once


@dataclass(frozen=True)
class Robust:
    """An average by one of the rules.

    Attributes:
        rule: which.
        trim: share of the clients that is left out on each side.
        clip: how far a client may be from the median, in median distances.
    """

    rule: Rule
    trim: float = 0.2
    clip: float = 1.0

    def __call__(self, stack: Tensor, votes: Tensor | None = None) -> Tensor:
        """[M, ...], and who votes, [M, P] bool with P the size of the second axis -> [...]."""
        if self.rule == "clipped":
            return clipped(stack, self.clip, votes)
        return trimmed(stack, self.trim if self.rule == "trimmed" else 0.5, votes)


def trimmed(stack: Tensor, trim: float, votes: Tensor | None = None) -> Tensor:
    """The mean of each coordinate without `trim` of the clients on each side; at least one or two in the middle are left."""
    flat = stack.flatten(1)
    width = max(1, CHUNK // max(1, len(stack)))
    parts = [
        _trimmed(flat[:, first : first + width], trim, _votes_for(votes, flat.shape[1], first, first + width))
        for first in range(0, flat.shape[1], width)
    ]
    idle.release(stack)
    return torch.cat(parts).view(stack.shape[1:]) if parts else stack.new_zeros(stack.shape[1:])


def _votes_for(votes: Tensor | None, entries: int, first: int, last: int) -> Tensor | None:
    """Who votes for the entries first .. last - 1 of a client's flat tensor: [M, n]."""
    if votes is None:
        return None
    patch = torch.arange(first, min(last, entries), device=votes.device) // (entries // votes.shape[1])
    return (votes | ~votes.any(0))[:, patch]


def _trimmed(x: Tensor, trim: float, votes: Tensor | None) -> Tensor:
    """[M, n] -> [n]."""
    if votes is None:
        count = torch.full(x.shape[1:], len(x), device=x.device)
    else:
        count = votes.sum(0)
        x = torch.where(votes, x, torch.inf)  # after everyone who votes
    cut = torch.minimum((trim * count + 1e-6).floor().long(), (count - 1) // 2)
    place = torch.arange(len(x), device=x.device).unsqueeze(1)
    kept = (place >= cut) & (place < count - cut)
    return torch.where(kept, x.sort(0).values, 0.0).sum(0) / (count - 2 * cut)


def clipped(stack: Tensor, clip: float, votes: Tensor | None = None) -> Tensor:
    """The mean of the clients' tensors, each drawn toward the median to at most `clip` median distances from it."""
    centre = trimmed(stack, 0.5, votes)
    shape = (-1, *[1] * (stack.dim() - 2))
    who = None if votes is None else (votes | ~votes.any(0)).to(stack.dtype)

    def gap(m: int) -> Tensor:
        apart = torch.nan_to_num(stack[m] - centre, nan=0.0, posinf=0.0, neginf=0.0)
        idle.release(stack[m])
        return apart if who is None else apart * who[m].view(shape)

    # Client by client: nothing as large as the stack is made.
    distance = torch.stack([torch.linalg.vector_norm(gap(m), dtype=torch.float64) for m in range(len(stack))])
    radius = clip * trimmed(distance.unsqueeze(1), 0.5)
    share = (radius / distance.clamp_min(torch.finfo(torch.float64).tiny)).clamp_max(1.0).to(stack.dtype)
    total = torch.zeros_like(centre)
    for m in range(len(stack)):
        total.addcmul_(gap(m), share[m])
    count = len(stack) if who is None else who.sum(0).view(shape)
    return centre + total / count


def check_averages(method: Method) -> None:
    """Refuse a method that does not average, or not plainly with its settings."""
    if type(method).averages is Method.averages:
        others = [name for name, other in methods().items() if other.averages is not Method.averages]
        raise FedquiltError(
            f"The server of method '{method.name}' does not average what clients send, so that there is nothing to make "
            f"robust; leave out aggregation, or choose one that does: {', '.join(others)}."
        )
    if not method.averages():
        raise FedquiltError(
            f"With these settings method '{method.name}' takes no plain average that could be made robust; leave out "
            "aggregation, or choose settings with which it does (fedpub: matching=false)."
        )
