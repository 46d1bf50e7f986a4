"""Robust averages: rules for servers that average, which a few hostile or broken clients cannot move far.

Each rule is for stacks [M, ...] with a tensor a client. None looks at the weight that a client states: who lies about its
model lies about its size. With `votes` [M, P] only clients that vote for a patch (a row of the second axis) count in it; where
nobody votes, all count.

- *median*, coordinate by coordinate (Yin et al., 2018): the middle one, or the mean of the two in the middle.
- *trimmed*, coordinate by coordinate (the same): the mean without the smallest and the largest `trim` share on each side, which
  is at least one client where there are three or more: a fifth of three would be nobody.
- *clipped* (centred clipping, Karimireddy et al., 2021, around the median): c + mean_m min(1, r / |w_m - c|) (w_m - c), where
  c is the coordinate median and r is `clip` times the median of the clients' distances |w_m - c| from it.

Where the server itself computed how much each client counts for each receiver (`mix`), these shares are used: the weighted
median; the mean of the weight that is left when `trim` of all weight is cut off on each side (exactly so much, so that a client
who counts for more is not cut off whole); the weighted mean of clipped tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedquilt.devices import offload
from fedquilt.errors import FedquiltError
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import Method, methods

Rule = Literal["median", "trimmed", "clipped"]
CHUNK = 2**24  # numbers sorted at once
SPARE = 1e-6  # a client whose weight is what is cut off is cut off, whatever rounding did to it
FEWEST = 3  # the middle one of fewer clients is their mean
MIDDLE = 0.5 - 1e-4  # so much of all weight is cut off on each side for a median; a little is left in any case


@dataclass(frozen=True)
class RobustAverage(Averaging):
    """An average by one of the rules.

    Attributes:
        rule: which.
        trim: share of the clients that is left out on each side; from three clients on at least one, unless it is 0.
        clip: how far a client may be from the median, in median distances.
    """

    rule: Rule
    trim: float = 0.2
    clip: float = 1.0

    def average(self, stack: Tensor, weight: Tensor | None = None) -> Tensor:
        """One average for everyone, whatever the weights: [M, ...] -> [...]."""
        return self.of_voters(stack)

    def mix(self, share: Tensor, stack: Tensor) -> Tensor:
        """An average for each of r receivers: share [r, M], whose rows sum to one, and stack [M, ...] -> [r, ...]."""
        if self.rule == "clipped":
            return clipped_mix(stack, self.clip, share)
        return trimmed_mix(stack, self.trim if self.rule == "trimmed" else MIDDLE, share)

    def average_patches(self, stack: Tensor, evidence: Tensor, floor: Tensor) -> Tensor:
        """An average of each patch over the clients with any evidence for it, however much: anyone can claim much."""
        return self.of_voters(stack, evidence > 0)

    def of_voters(self, stack: Tensor, votes: Tensor | None = None) -> Tensor:
        """The average over those who vote: [M, ...], votes [M, P] bool with P the size of the second axis -> [...]."""
        if self.rule == "clipped":
            return clipped(stack, self.clip, votes)
        return trimmed(stack, self.trim if self.rule == "trimmed" else 0.5, votes)


def averaging_rule(name: Literal["mean"] | Rule, trim: float, clip: float) -> Averaging:
    """The rule that the options `aggregation`, `aggregation_trim` and `aggregation_clip` of a run name."""
    return WEIGHTED_MEAN if name == "mean" else RobustAverage(name, trim, clip)


def trimmed(stack: Tensor, trim: float, votes: Tensor | None = None) -> Tensor:
    """The mean of each coordinate without `trim` of the clients on each side.

    Unless `trim` is 0 at least one is left out on each side; one or two in the middle are always left.
    """
    flat = stack.flatten(1)
    width = max(1, CHUNK // max(1, len(stack)))
    parts = [
        _trimmed(flat[:, first : first + width], trim, _votes_for(votes, flat.shape[1], first, first + width))
        for first in range(0, flat.shape[1], width)
    ]
    offload.release_pages(stack)
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
    cut = (trim * count + 1e-6).floor().long().clamp_min(1 if trim > 0 else 0)
    cut = torch.minimum(cut, (count - 1) // 2)
    place = torch.arange(len(x), device=x.device).unsqueeze(1)
    kept = (place >= cut) & (place < count - cut)
    return torch.where(kept, x.sort(0).values, 0.0).sum(0) / (count - 2 * cut)


def clipped(stack: Tensor, clip: float, votes: Tensor | None = None) -> Tensor:
    """The mean of the clients' tensors, each drawn toward the median to at most `clip` median distances from it."""
    centre = trimmed(stack, 0.5, votes)
    shape = (-1, *[1] * (stack.dim() - 2))
    who = None if votes is None else (votes | ~votes.any(0)).to(stack.dtype)

    def gap(m: int) -> Tensor:
        apart = _gap(stack, centre, m)
        return apart if who is None else apart * who[m].view(shape)

    # Client by client: nothing as large as the stack is made.
    kept = _kept(torch.stack([_length(gap(m)) for m in range(len(stack))]), clip).to(stack.dtype)
    total = torch.zeros_like(centre)
    for m in range(len(stack)):
        total.addcmul_(gap(m), kept[m])
    count = len(stack) if who is None else who.sum(0).view(shape)
    return centre + total / count


def trimmed_mix(stack: Tensor, trim: float, share: Tensor) -> Tensor:
    """Each receiver's weighted mean of each coordinate without `trim` of all weight on each side: [r, M] -> [r, ...]."""
    flat, share = stack.flatten(1), share.double() / share.double().sum(1, keepdim=True)
    cut = min(trim + SPARE, MIDDLE) if trim else 0.0
    width = max(1, CHUNK // max(1, len(stack)))
    out = stack.new_empty(len(share), flat.shape[1])
    for first in range(0, flat.shape[1], width):
        values, order = flat[:, first : first + width].nan_to_num(nan=torch.inf).sort(0)
        for receiver, weights in enumerate(share):
            upto = weights[order].cumsum(0)  # [M, n]: the weight of a client and of all with smaller numbers
            left = upto.clamp(cut, 1.0 - cut).diff(dim=0, prepend=torch.full_like(upto[:1], cut))
            total = torch.where(left > 0, values * left, 0.0).sum(0)
            out[receiver, first : first + width] = (total / left.sum(0)).to(out.dtype)
    return out.view(len(share), *stack.shape[1:])


def clipped_mix(stack: Tensor, clip: float, share: Tensor) -> Tensor:
    """Each receiver's weighted mean of the clients' tensors, drawn toward the median as in `clipped`: [r, M] -> [r, ...]."""
    centre = trimmed(stack, 0.5)
    gaps = torch.stack([_gap(stack, centre, m).flatten() for m in range(len(stack))])
    kept = _kept(torch.stack([_length(gap) for gap in gaps]), clip).to(stack.dtype)
    return centre + ((share * kept) @ gaps).view(len(share), *stack.shape[1:])


def _gap(stack: Tensor, centre: Tensor, m: int) -> Tensor:
    """How far a client is from the centre; where it has no finite number, not at all."""
    apart = torch.nan_to_num(stack[m] - centre, nan=0.0, posinf=0.0, neginf=0.0)
    offload.release_pages(stack[m])
    return apart


def _length(gap: Tensor) -> Tensor:
    return torch.linalg.vector_norm(gap, dtype=torch.float64)


def _kept(distance: Tensor, clip: float) -> Tensor:
    """What is left of each gap: min(1, r / distance), r = `clip` median distances."""
    radius = clip * trimmed(distance.unsqueeze(1), 0.5)
    return (radius / distance.clamp_min(torch.finfo(torch.float64).tiny)).clamp_max(1.0)


def check_averages(method: Method) -> None:
    """Refuse a robust rule for a method that does not average with its settings, and for fewer than three clients."""
    if type(method).averages is Method.averages:
        others = [name for name, other in methods().items() if other.averages is not Method.averages]
        raise FedquiltError(
            f"The server of method '{method.name}' does not average all that clients send, so that there is nothing to make "
            f"robust; leave out aggregation, or choose one that does: {', '.join(others)}."
        )
    if not method.averages():
        raise FedquiltError(
            f"With these settings method '{method.name}' takes no average that could be made robust; leave out aggregation, "
            "or choose settings with which it does."
        )
    if method.context.clients < FEWEST:
        raise FedquiltError(
            f"A robust average needs at least {FEWEST} clients and there are {method.context.clients}: the median of two is "
            "their mean; leave out aggregation, or train with more clients."
        )
