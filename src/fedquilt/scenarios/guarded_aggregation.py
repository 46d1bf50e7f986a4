"""The guarded average: hostile clients cannot move it far even where few clients vote, and it keeps the mean's accuracy.

The other robust rules (`fedquilt.scenarios.robust_aggregation`) give every client that votes the same say in each coordinate.
Under Quilt that is one client of two, or of one, for a feature that is rare; and coordinate medians of clients that differ are
poor models. The guarded average is a weighted mean of *steps* d_m = w_m - g from the value g that was sent before (the common
start before round 0), each bounded by what the other clients do. All medians are lower medians.

For one average of n clients m with stated counts n_m (`guarded`):

    a client is left out    whose step is longer than FAR r, where r = median_m |d_m|
    or goes against others  median_{j != m} cos(d_m, d_j) < -max(AGAINST, 1.5 / (n - 1)), in this tensor, if it has ENTRIES
                            numbers or more, or in all that is averaged together (`trusted`). For comparison: cosines between
                            steps of n clients that add up to nothing are -1 / (n - 1) on average
    steps are shortened     u_m = d_m min(1, r / |d_m|)
    counts are bounded      c_m = min(n_m, COUNT median n)
    result                  g + sum_m c_m u_m / sum_m c_m

By evidence e_mp, for each patch p (`guarded_patches`), with the clients V_p that have evidence for it:

    a client is left out    whose root mean square step over its patches is more than FAR times the median client's, or that
                            goes against the others, as above
    a patch is left out     whose step is longer than FAR_PATCH r, with r the median over clients of their median |d_mp|
    steps are shortened     u_mp = d_mp min(1, r / |d_mp|)
    evidence is bounded     c_mp = min(e_mp, COUNT median_{m in V_p} e_mp)
    enough clients vote     g_p + sum_m c_mp u_mp / sum_m c_mp, where |V_p| >= `voters`
    few vote                g_p + the coordinate median of u_mp, m in V_p, and of voters - |V_p| zeros: the previous value
                            votes in place of those who are missing. So one client alone moves nothing, and of two that
                            disagree in sign neither does
    the result is bounded   a patch is no longer than SIZE times the median patch for which enough clients vote

An average for each receiver i by shares a_ij of the senders j (`guarded_shares`) is self-centred clipping (He et al.,
Byzantine-Robust Decentralized Learning via ClippedGossip, 2022): the receiver trusts what it sent, and takes steps from there:

    d_ij = |w_j - w_i|, r_i = median_{j != i} d_ij      j is left out where d_ij > FAR r_i
    a'_ij = min(a_ij, SHARE / n) min(1, r_i / d_ij)     for j != i; a'_ii is what is left of one
    result                                              sum_j a'_ij w_j

A receiver that did not send, or whose own radius r_i is more than FAR times the median one (it sent nonsense), takes steps from
the sender with the smallest radius.

Servers that do not average (FedSSA, FedSheafHN) have what clients add shortened to its median length, and left out where it
is longer than FAR medians (`GuardedAverage.limited`, `limited_counts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedquilt.devices import offload
from fedquilt.methods.averaging import Averaging

FAR = 3.0  # median steps beyond which a client is left out
FAR_PATCH = 5.0  # the same of a patch
AGAINST = 0.25  # median cosine with the others' steps, below minus which a client is left out
ENTRIES = 512  # the cosines of shorter steps say little
COUNT = 3.0  # medians to which counts and evidence are bounded
SIZE = 3.0  # median patches to which the length of a patch is bounded
SHARE = 2.0  # of what each would have if all counted alike: the most of one client in another's average
TINY = 1e-30
LARGE = (
    1e18  # in place of larger numbers, and of those that are none: far enough to be left out, and zero times it is zero
)
CHUNK = 2**22  # numbers at once


@dataclass(frozen=True)
class GuardedAverage(Averaging):
    """The weighted mean of bounded steps.

    Attributes:
        voters: with fewer clients than this that have evidence for a patch, the previous value votes for those missing.
    """

    voters: int = 3
    needs_previous: ClassVar[bool] = True

    def average(self, stack: Tensor, weight: Tensor | None = None, previous: Tensor | None = None) -> Tensor:
        """Compute one average for all receivers, by steps from `previous` [...], or from the coordinate median: [M, ...]."""
        return guarded(stack, weight, previous)

    def mix(self, share: Tensor, stack: Tensor, own: Tensor | None = None) -> Tensor:
        """Compute an average for each of r receivers, by steps from what each sent itself: share [r, M] -> [r, ...]."""
        flat = stack.flatten(1)
        if own is None:  # the receivers are the senders, or it is not known who they are
            alike = len(share) == len(stack)
            own = torch.arange(len(share), device=stack.device) if alike else share.new_full((len(share),), -1).long()
        shares = guarded_shares(share, flat, own)
        out = stack.new_empty(len(share), flat.shape[1])
        for some in _columns(flat):
            out[:, some] = shares @ _finite(flat[:, some])
        return out.view(len(share), *stack.shape[1:])

    def average_patches(self, stack: Tensor, evidence: Tensor, floor: Tensor, previous: Tensor | None = None) -> Tensor:
        """Average each patch by steps from `previous` [P, ...]. Where nobody has evidence, the previous value stays."""
        if previous is None:
            previous = coordinate_median(stack)
        return guarded_patches(stack, evidence, previous, self.voters)

    def trust(
        self, stacks: Sequence[Tensor], previous: Sequence[Tensor], votes: Sequence[Tensor | None]
    ) -> list[Tensor] | None:
        """Which clients count in each of the tensors that are averaged together; see `trusted`."""
        return [each.to(stack.dtype) for each, stack in zip(trusted(stacks, previous, votes), stacks, strict=True)]

    def limited(self, stack: Tensor, centred: bool = False) -> Tensor:
        """Shorten what clients sent, [M, ...], to the median length; what is longer than FAR medians is zero.

        `centred`: lengths are those of differences from the coordinate median.
        """
        stack = _finite(stack)
        centre = coordinate_median(stack) if centred else torch.zeros_like(stack[0])
        length = _lengths(stack, centre)
        kept, _ = bounded_steps(length, lower_median(length))
        return centre + (stack - centre) * kept.to(stack.dtype).view(-1, *[1] * (stack.dim() - 1))

    def limited_counts(self, count: Tensor, *sizes: Tensor) -> Tensor:
        """Counts of at most COUNT medians over the clients that have any; 0 where a size is more than FAR medians: [M, C]."""
        some = count > 0
        out = torch.minimum(count, COUNT * lower_median(torch.where(some, count, torch.inf)))
        for size in sizes:
            out = torch.where(size <= FAR * lower_median(torch.where(some, size, torch.inf)), out, 0.0)
        return out


def guarded(stack: Tensor, weight: Tensor | None, previous: Tensor | None) -> Tensor:
    """Compute the guarded average of whole tensors: stack [M, ...], weight [M], previous [...] -> [...]."""
    centre = coordinate_median(stack) if previous is None else previous
    length = _lengths(stack, centre)
    count = torch.ones_like(length) if weight is None else weight.double()
    counts = torch.where(count > 0, count, torch.inf)  # who has none is left out already
    kept, near = bounded_steps(length, lower_median(torch.where(count > 0, length, torch.inf)))
    count = torch.minimum(count, COUNT * lower_median(counts)) * near
    share = (count / count.sum().clamp_min(TINY) * kept).to(stack.dtype)
    out = centre.clone()
    for m in range(len(stack)):  # so that nothing as large as the stack is allocated
        out.addcmul_(_finite(stack[m]) - centre, share[m])
        offload.release_pages(stack[m])
    return out


def guarded_patches(stack: Tensor, evidence: Tensor, previous: Tensor, voters: int) -> Tensor:
    """Compute the guarded average of each patch: stack [M, P, ...], evidence [M, P], previous [P, ...] -> [P, ...]."""
    clients, patches = evidence.shape
    stack, before = stack.reshape(clients, patches, -1), previous.reshape(patches, -1)
    length = torch.stack([torch.linalg.vector_norm((_finite(w) - before).double(), dim=1) for w in stack])  # [M, P]
    kept, votes = bounded_patches(length, evidence > 0)
    count = torch.where(votes, evidence.double(), 0.0)
    count = torch.minimum(count, COUNT * lower_median(torch.where(votes, count, torch.inf)))
    share = (count / count.sum(0).clamp_min(TINY) * kept).to(stack.dtype)
    present = votes.sum(0)
    enough = (present >= voters).unsqueeze(1)
    # Those who are missing are made up from clients without evidence, who then vote for the previous value.
    missing = ~votes & ((~votes).cumsum(0) <= voters - present)
    step = torch.empty_like(before)
    width = max(1, CHUNK // max(1, clients * before.shape[1]))
    kept = kept.to(stack.dtype)
    for first in range(0, patches, width):
        some = slice(first, first + width)
        apart = _finite(stack[:, some]) - before[some]
        mean = (apart * share[:, some].unsqueeze(2)).sum(0)
        few = median_of(apart * kept[:, some].unsqueeze(2), (votes | missing)[:, some])
        step[some] = torch.where(enough[some], mean, few)
    return _short_patches(before + step, enough.squeeze(1)).view(previous.shape)


def bounded_steps(length: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Factors min(1, r / |d_m|) of the clients' steps, 0 of those left out, and who is not (1 or 0): [M] -> [M], [M]."""
    near = (length <= FAR * radius).to(length.dtype)
    return (radius / length.clamp_min(TINY)).clamp_max(1.0) * near, near


def bounded_patches(length: Tensor, votes: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of the steps of the clients' patches, 0 where they are left out, and which are not: [M, P] -> [M, P], [M, P]."""
    own = torch.where(votes, length, torch.inf)
    radius = lower_median(lower_median(own.T))  # of each client's median; inf where a client votes for nothing
    count = votes.sum(1)
    square = torch.where(votes, length, 0.0).square().sum(1) / count.clamp_min(1)
    typical = torch.where(count > 0, square.sqrt(), torch.inf)
    near = (typical <= FAR * lower_median(typical)).unsqueeze(1) & (length <= FAR_PATCH * radius)
    votes = votes & near
    return torch.where(votes, (radius / length.clamp_min(TINY)).clamp_max(1.0), 0.0), votes


def guarded_shares(share: Tensor, flat: Tensor, own: Tensor) -> Tensor:
    """The shares of self-centred clipping: share [r, M], flat [M, D], own [r] -> [r, M].

    `own` has the receivers' places among the senders, -1 of those who did not send.
    """
    clients = len(flat)
    places = torch.arange(clients, device=flat.device)
    products = flat.new_zeros((clients, clients), dtype=torch.float64)
    for some in _columns(flat):
        part = _finite(flat[:, some]).double()
        products += part @ part.T
    squares = products.diagonal()
    apart = (squares.unsqueeze(1) + squares - 2 * products).clamp_min(0.0).sqrt()  # [M, M]
    radii = lower_median(torch.where(places.unsqueeze(1) == places, torch.inf, apart))  # [M]
    radii = torch.where(torch.isfinite(radii), radii, 0.0)  # of the only sender
    sound = (own >= 0) & (radii[own.clamp_min(0)] <= FAR * lower_median(radii))
    centre = torch.where(sound, own, radii.argmin())
    mine, radius, apart = centre.unsqueeze(1) == places, radii[centre].unsqueeze(1), apart[centre]
    kept = torch.where(apart <= FAR * radius, (radius / apart.clamp_min(TINY)).clamp_max(1.0), 0.0)
    bounded = share.double() / share.double().sum(1, keepdim=True)
    bounded = torch.where(mine, 0.0, bounded.clamp_max(SHARE / clients) * kept)
    return torch.where(mine, 1.0 - bounded.sum(1, keepdim=True), bounded).to(flat.dtype)


def trusted(stacks: Sequence[Tensor], centres: Sequence[Tensor], votes: Sequence[Tensor | None]) -> list[Tensor]:
    """Which clients' steps do not go against those of the others, for each tensor (1 or 0): [M] each.

    Args:
        stacks: [M, ...] each; centres: [...] each.
        votes: [M, P], where the patches of a tensor are its first axis: a client's step is that of the patches it votes for.
    """
    parts = [_products(*each) for each in zip(stacks, centres, votes, strict=True)]
    together = agrees(torch.stack(parts).sum(0))
    return [
        together * agrees(part) if centre.numel() >= ENTRIES else together
        for part, centre in zip(parts, centres, strict=True)
    ]


def agrees(products: Tensor) -> Tensor:
    """Which of n clients have a median cosine with the others not far below zero (1 or 0), from d_m d_j: [n, n] -> [n]."""
    clients = len(products)
    length = products.diagonal().sqrt().clamp_min(TINY)
    cosine = products / length / length.unsqueeze(1)
    own = torch.eye(clients, dtype=torch.bool, device=products.device)
    limit = -max(AGAINST, 1.5 / max(1, clients - 1))
    return (lower_median(torch.where(own, torch.inf, cosine)) >= limit).to(products.dtype)


def _products(stack: Tensor, centre: Tensor, votes: Tensor | None) -> Tensor:
    """The products of the clients' steps, in double precision: [M, M]."""
    products = stack.new_zeros((len(stack), len(stack)), dtype=torch.float64)
    flat, middle = stack.flatten(1), centre.flatten()
    each = 1 if votes is None else len(middle) // votes.shape[1]  # numbers a patch
    for some in _columns(flat):
        part = _finite(flat[:, some]) - middle[some]
        if votes is not None:
            part = part * votes[:, torch.arange(some.start, some.start + part.shape[1], device=part.device) // each]
        products += part.double() @ part.double().T
    return products


def lower_median(x: Tensor) -> Tensor:
    """The lower median over the first axis of the values that are finite: [M, ...] -> [...]; inf where none is."""
    values = torch.where(torch.isnan(x), torch.inf, x).sort(0).values
    place = ((torch.isfinite(values).sum(0) - 1) // 2).clamp_min(0)
    return values.gather(0, place.unsqueeze(0))[0]


def median_of(stack: Tensor, votes: Tensor) -> Tensor:
    """The median of each coordinate over the clients that vote, 0 without any: stack [M, P, D], votes [M, P] -> [P, D]."""
    count = votes.sum(0)
    values = torch.where(votes.unsqueeze(2), stack, torch.inf).sort(0).values
    shape = (1, *values.shape[1:])
    middle = [
        values.gather(0, place.clamp_min(0).view(1, -1, 1).expand(shape))[0] for place in ((count - 1) // 2, count // 2)
    ]
    return torch.where((count > 0).unsqueeze(1), 0.5 * (middle[0] + middle[1]), 0.0)


def coordinate_median(stack: Tensor) -> Tensor:
    """The median of each coordinate: [M, ...] -> [...]."""
    flat, parts = stack.flatten(1), []
    for some in _columns(flat):
        values = _finite(flat[:, some]).sort(0).values
        parts.append(0.5 * (values[(len(stack) - 1) // 2] + values[len(stack) // 2]))
    offload.release_pages(stack)
    return torch.cat(parts).view(stack.shape[1:]) if parts else stack.new_zeros(stack.shape[1:])


def _finite(tensor: Tensor) -> Tensor:
    """The tensor with numbers in [-LARGE, LARGE] only."""
    return torch.nan_to_num(tensor, nan=LARGE).clamp(-LARGE, LARGE)


def _columns(flat: Tensor) -> Iterator[slice]:
    """Pieces of the columns of [M, D], of about CHUNK numbers each."""
    width = max(1, CHUNK // max(1, len(flat)))
    for first in range(0, flat.shape[1], width):
        yield slice(first, first + width)


def _lengths(stack: Tensor, centre: Tensor) -> Tensor:
    """|w_m - centre| in double precision: [M, ...] -> [M]."""
    found = []
    for w in stack:
        found.append(torch.linalg.vector_norm((_finite(w) - centre).double()))
        offload.release_pages(w)
    return torch.stack(found)


def _short_patches(patches: Tensor, enough: Tensor) -> Tensor:
    """Patches [P, D], none longer than SIZE times the median of those for which enough clients vote (of all, where none is)."""
    length = torch.linalg.vector_norm(patches.double(), dim=1)
    usual = lower_median(torch.where(enough | ~enough.any(), length, torch.inf))
    return patches * (SIZE * usual / length.clamp_min(TINY)).clamp_max(1.0).to(patches.dtype).unsqueeze(1)
