"""Robust averages: aggregation rules whose result a few hostile or broken clients cannot move far.

Each rule averages a stack [M, ...] with one tensor per client. No rule uses the weight that a client states, because a client
that lies about its model may lie about its size too. With `votes` [M, P], a patch (an index of the second axis) is averaged
over the clients that vote for it, or over all where nobody votes.

- *median* of each coordinate (Yin et al., 2018): the middle value, or the mean of the two in the middle.
- *trimmed* mean of each coordinate (the same paper): the mean without the share `trim` of the smallest values and as many of
  the largest. With three or more clients and `trim` > 0, at least one is left out on each side, even if the share rounds to 0.
- *clipped* (centred clipping, Karimireddy et al., 2021, around the median): c + mean_m min(1, r / |w_m - c|) (w_m - c), where
  c is the coordinate median and r is `clip` times the median of the clients' distances |w_m - c| from it.

Where the server itself computed a weight of each client for each receiver (`mix`), the rules use these weights: the weighted
median; the weighted mean after the share `trim` of all weight is removed on each side (exactly this share, so a client with a
larger weight is removed only in part); the weighted mean of clipped tensors.
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
from fedquilt.scenarios.guarded_aggregation import GuardedAverage
from fedquilt.scenarios.kinds import AggregationRule

Rule = Literal["median", "trimmed", "clipped"]
CHUNK = 2**24  # numbers sorted at once
SPARE = 1e-6  # tolerance for rounding: a client whose weight equals the share to remove is removed entirely
FEWEST = 3  # the fewest clients; the median of fewer is their mean
MIDDLE = 0.5 - 1e-4  # share of the weight removed on each side for a median; below half, so that some is left


@dataclass(frozen=True)
class RobustAverage(Averaging):
    """Averages by one of the rules.

    Attributes:
        rule: the name of the rule.
        trim: share of the clients that is left out on each side; with three or more clients at least one, unless it is 0.
        clip: the largest distance of a client from the median, in multiples of the median distance.
    """

    rule: Rule
    trim: float = 0.2
    clip: float = 1.0

    def average(self, stack: Tensor, weight: Tensor | None = None, previous: Tensor | None = None) -> Tensor:
        """Compute one average for all receivers; the weights are ignored: [M, ...] -> [...]."""
        return self.of_voters(stack)

    def mix(self, share: Tensor, stack: Tensor, own: Tensor | None = None) -> Tensor:
        """Compute an average for each of r receivers: share [r, M], whose rows sum to one, and stack [M, ...] -> [r, ...]."""
        if self.rule == "clipped":
            return clipped_mix(stack, self.clip, share)
        return trimmed_mix(stack, self.trim if self.rule == "trimmed" else MIDDLE, share)

    def average_patches(self, stack: Tensor, evidence: Tensor, floor: Tensor, previous: Tensor | None = None) -> Tensor:
        """Average each patch over the clients that have evidence for it. The amount is ignored: a client can claim any."""
        return self.of_voters(stack, evidence > 0)

    def of_voters(self, stack: Tensor, votes: Tensor | None = None) -> Tensor:
        """Average over the clients that vote: stack [M, ...], votes [M, P] bool, P the size of the second axis -> [...]."""
        if self.rule == "clipped":
            return clipped(stack, self.clip, votes)
        return trimmed(stack, self.trim if self.rule == "trimmed" else 0.5, votes)


def averaging_rule(name: AggregationRule, trim: float = 0.2, clip: float = 1.0, voters: int = 3) -> Averaging:
    """Return the rule for a run's options `aggregation` and `aggregation_trim`, `_clip` and `_voters`."""
    if name == "mean":
        return WEIGHTED_MEAN
    return GuardedAverage(voters) if name == "guarded" else RobustAverage(name, trim, clip)


def trimmed(stack: Tensor, trim: float, votes: Tensor | None = None) -> Tensor:
    """Compute the mean of each coordinate without the share `trim` of the clients on each side.

    Unless `trim` is 0, at least one client is left out on each side. The one or two in the middle always count.
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
    """Return which clients vote for the entries first .. last - 1 of the flattened tensors: [M, n]."""
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
        x = torch.where(votes, x, torch.inf)  # sorted after the clients that vote
    cut = (trim * count + 1e-6).floor().long().clamp_min(1 if trim > 0 else 0)
    cut = torch.minimum(cut, (count - 1) // 2)
    place = torch.arange(len(x), device=x.device).unsqueeze(1)
    kept = (place >= cut) & (place < count - cut)
    return torch.where(kept, x.sort(0).values, 0.0).sum(0) / (count - 2 * cut)


def clipped(stack: Tensor, clip: float, votes: Tensor | None = None) -> Tensor:
    """Compute the mean of the clients' tensors, each first moved to at most `clip` median distances from the median."""
    centre = trimmed(stack, 0.5, votes)
    shape = (-1, *[1] * (stack.dim() - 2))
    who = None if votes is None else (votes | ~votes.any(0)).to(stack.dtype)

    def gap(m: int) -> Tensor:
        apart = _gap(stack, centre, m)
        return apart if who is None else apart * who[m].view(shape)

    # Client by client, so that nothing as large as the stack is allocated.
    kept = _kept(torch.stack([_length(gap(m)) for m in range(len(stack))]), clip).to(stack.dtype)
    total = torch.zeros_like(centre)
    for m in range(len(stack)):
        total.addcmul_(gap(m), kept[m])
    count = len(stack) if who is None else who.sum(0).view(shape)
    return centre + total / count


def trimmed_mix(stack: Tensor, trim: float, share: Tensor) -> Tensor:
    """Compute each receiver's weighted mean of each coordinate, without the share `trim` of the weight on each side.

    Shapes: stack [M, ...], share [r, M] -> [r, ...].
    """
    flat, share = stack.flatten(1), share.double() / share.double().sum(1, keepdim=True)
    cut = min(trim + SPARE, MIDDLE) if trim else 0.0
    width = max(1, CHUNK // max(1, len(stack)))
    out = stack.new_empty(len(share), flat.shape[1])
    for first in range(0, flat.shape[1], width):
        values, order = flat[:, first : first + width].nan_to_num(nan=torch.inf).sort(0)
        for receiver, weights in enumerate(share):
            upto = weights[order].cumsum(0)  # [M, n]: the weight of a client and of all with smaller values
            left = upto.clamp(cut, 1.0 - cut).diff(dim=0, prepend=torch.full_like(upto[:1], cut))
            total = torch.where(left > 0, values * left, 0.0).sum(0)
            out[receiver, first : first + width] = (total / left.sum(0)).to(out.dtype)
    return out.view(len(share), *stack.shape[1:])


def clipped_mix(stack: Tensor, clip: float, share: Tensor) -> Tensor:
    """Compute each receiver's weighted mean of the clients' tensors, moved toward the median as in `clipped`.

    Shapes: stack [M, ...], share [r, M] -> [r, ...].
    """
    centre = trimmed(stack, 0.5)
    gaps = torch.stack([_gap(stack, centre, m).flatten() for m in range(len(stack))])
    kept = _kept(torch.stack([_length(gap) for gap in gaps]), clip).to(stack.dtype)
    return centre + ((share * kept) @ gaps).view(len(share), *stack.shape[1:])


def _gap(stack: Tensor, centre: Tensor, m: int) -> Tensor:
    """Return the difference of a client's tensor from the centre; zero where the tensor is not finite."""
    apart = torch.nan_to_num(stack[m] - centre, nan=0.0, posinf=0.0, neginf=0.0)
    offload.release_pages(stack[m])
    return apart


def _length(gap: Tensor) -> Tensor:
    return torch.linalg.vector_norm(gap, dtype=torch.float64)


def _kept(distance: Tensor, clip: float) -> Tensor:
    """Compute the factor min(1, r / distance) of each client's difference, with r = `clip` median distances."""
    radius = clip * trimmed(distance.unsqueeze(1), 0.5)
    return (radius / distance.clamp_min(torch.finfo(torch.float64).tiny)).clamp_max(1.0)


def check_averages(method: Method, rule: AggregationRule) -> None:
    """Refuse a robust rule for a method whose server cannot use it with its settings, and for fewer than three clients."""
    kind = type(method)
    if kind.averages is Method.averages and not (rule == "guarded" and kind.guarded):
        others = [name for name, other in methods().items() if other.averages is not Method.averages]
        instead = "choose aggregation=guarded" if kind.guarded else "leave out aggregation"
        raise FedquiltError(
            f"The server of method '{method.name}' does not average all that clients send, so that there is nothing to make "
            f"robust by '{rule}'; {instead}, or a method that does: {', '.join(others)}."
        )
    if not (method.averages() or kind.guarded):
        raise FedquiltError(
            f"With these settings method '{method.name}' takes no average that could be made robust; leave out aggregation, "
            "or choose settings with which it does."
        )
    if method.context.clients < FEWEST:
        raise FedquiltError(
            f"A robust average needs at least {FEWEST} clients and there are {method.context.clients}: the median of two is "
            "their mean; leave out aggregation, or train with more clients."
        )
