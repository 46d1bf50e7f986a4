"""Latent graphs: choose edges between a client's nodes by a score, without an n x n matrix.

Scores of all pairs are computed for a few rows at a time, and only the chosen pairs are kept. A client of n nodes with k
neighbours per node takes O(n k) memory and O(n^2) time. Pairs are chosen without gradient. `fedquilt.nn.structure` computes the
scores of the chosen pairs again with gradient, so that the score's weights are trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws
from fedquilt.cohort.rows import Rows
from fedquilt.nn.edges import Links

CHUNK = 2**20  # scores in memory at once (4 MB, so that they are still in the cache when they are searched)
CHUNK_CUDA = 2**27
FEW_GROUPS = 0.8  # groups a node, up to which it pays to search for groups of nodes
GROUP = 8  # scores in a group; `_candidates` compares the maxima of groups first
BERNOULLI_LAYER = 63  # the `layer` of the draws that choose latent edges; see `Draws`
RANDOM_LAYER = 62  # that of the draws of `at_random`

# Computes the scores of r rows with all n rows of the same client, for b clients at once: [b, r, D], [b, n, D] -> [b, r, n].
Score = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Chosen:
    """Pairs (u, v) of rows.

    Attributes:
        links: the pairs.
        real: [E] 1.0 for a chosen pair, 0.0 for a filler. `top_k` returns exactly k pairs per row; a client with fewer nodes,
            or a row that is padding, has fillers, which pair the row with itself.
    """

    links: Links
    real: Tensor

    def row_sum(self, values: Tensor) -> Tensor:
        """Sum the values over all pairs of the same u, and return the sum at each pair: [E] -> [E]."""
        total, each = self.links.total(values), self.links.each
        return total[self.links.source] if each is None else total.unsqueeze(1).expand(-1, each).reshape(-1)

    def normalised(self, values: Tensor) -> Tensor:
        """Compute values_uv / sum_v values_uv for non-negative values: [E] -> [E]; a sum of zero gives zeros."""
        values = values * self.real
        return values / self.row_sum(values).clamp_min(1e-6)

    def softmax(self, values: Tensor) -> Tensor:
        """exp(values_uv) / sum_v exp(values_uv): [E] -> [E]."""
        source = self.links.source.long()
        highest = torch.full((self.links.rows,), -torch.inf, device=values.device)
        highest = highest.scatter_reduce(0, source, values.detach(), "amax")[source]
        return self.normalised(torch.exp(values - highest))


def product(left: Tensor, right: Tensor) -> Tensor:
    """left_u . right_v."""
    return left @ right.mT


@torch.no_grad()
def top_k(cohort: Cohort, left: Tensor, right: Tensor, k: int, score: Score = product) -> Chosen:
    """Choose for each node u the k nodes v of its client with the highest score(left_u, right_v); the first of equals.

    Shapes: left, right [R, D].
    """
    index = torch.arange(cohort.rows, device=left.device).unsqueeze(1).repeat(1, k)
    real = torch.zeros(cohort.rows, k, device=left.device)
    for first, sizes, mine, theirs in _together(cohort, left, right):
        length = mine.shape[1]
        most = min(k, length)
        empty = torch.arange(length, device=left.device) >= sizes.unsqueeze(1)  # [b, n]
        least = min(cohort.sizes)  # only entries after this one can be empty
        for start, scores in _chunks(mine, theirs, score):
            scores[:, :, least:].masked_fill_(empty[:, least:].unsqueeze(1), -torch.inf)
            best, place = largest(scores, most)
            row = first.unsqueeze(1) + torch.arange(start, start + scores.shape[1], device=left.device)  # [b, r]
            there = (best > -torch.inf) & ~empty[:, start : start + scores.shape[1]].unsqueeze(2)
            index[row, :most] = torch.where(there, first[:, None, None] + place, row.unsqueeze(2))
            real[row, :most] = there.float()
    return Chosen(Links.equally_many(index, cohort.rows), real.flatten())


@dataclass(frozen=True, eq=False)
class Alike:
    """One client's nodes, grouped so that those of a group have equal features. Groups are in the order of their first nodes.

    Attributes:
        group: [n] the group of each node.
        nodes: [n] the nodes in the order of their groups. start: [U] where in it each group begins. count: [U] its nodes.
    """

    group: Tensor
    nodes: Tensor
    start: Tensor
    count: Tensor

    @property
    def first(self) -> Tensor:
        """[U]: the first node of each group."""
        return self.nodes[self.start]

    def best(self, place: Tensor, k: int) -> Tensor:
        """The first k nodes of some groups, in their order: place [r, g] of at least k nodes each -> [r, k]."""
        count = self.count[place]
        end = count.cumsum(1)
        slot = torch.arange(k).expand(len(place), k).contiguous()
        rank = torch.searchsorted(end, slot, right=True)
        within = slot - (end - count).gather(1, rank)
        return self.nodes[self.start[place].gather(1, rank) + within]


def alike_nodes(cohort: Cohort, x: Tensor) -> list[Alike] | None:
    """Group each client's nodes by their rows of x [R, F]; None where few nodes have an equal one."""
    found = []
    for rows in cohort.parts_of(x):
        groups, group = torch.unique(rows, dim=0, return_inverse=True)
        first = torch.full((len(groups),), len(rows)).scatter_reduce(0, group, torch.arange(len(rows)), "amin")
        group = first.argsort().argsort()[group]
        count = torch.bincount(group)
        found.append(Alike(group, group.argsort(stable=True), count.cumsum(0) - count, count))
    return found if sum(len(one.start) for one in found) <= FEW_GROUPS * sum(cohort.sizes) else None


@torch.no_grad()
def top_k_alike(cohort: Cohort, left: Tensor, right: Tensor, k: int, alike: Sequence[Alike]) -> Chosen:
    """`top_k` where nodes of a group have equal rows of `left` and of `right`: groups are searched for their best groups.

    Of groups with equal scores, all nodes of the one that has the first node are taken before those of the next.
    """
    index = torch.arange(cohort.rows).unsqueeze(1).repeat(1, k)
    real = torch.zeros(cohort.rows, k)
    for first, nodes, one in zip(cohort.start.tolist(), cohort.sizes, alike, strict=True):
        own, most, rows = slice(first, first + nodes), min(k, nodes), first + one.first
        chunks = _chunks(left[rows].unsqueeze(0), right[rows].unsqueeze(0), product)
        place = torch.cat([largest(scores[0], min(k, len(rows)))[1] for _, scores in chunks])
        index[own, :most] = first + one.best(place, most)[one.group]
        real[own, :most] = 1.0
    return Chosen(Links.equally_many(index, cohort.rows), real.flatten())


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest scores of each row in falling order, and their indices: [..., n] -> [..., k], [..., k].

    Of equal scores the first are taken, so that the choice does not depend on the layout of the rows. For this, k + 1 scores
    are searched; if the last two are equal, the row is searched again.
    """
    if k == scores.shape[-1]:
        best, place = scores.topk(k, dim=-1)
        return best, place
    if scores.is_cuda:
        return _largest_keys(scores, k)
    best, place = _candidates(scores, k + 1)
    tied = (best[..., k - 1] == best[..., k]) & (best[..., k] > -torch.inf)
    best, place = best[..., :k], place[..., :k]
    if bool(tied.any()):
        rows, last = scores[tied], best[tied][:, -1:]
        above, equal = rows > last, rows == last
        missing = k - above.sum(1, keepdim=True)
        first = torch.nonzero(above | (equal & (equal.cumsum(1, dtype=torch.int32) <= missing)))[:, 1].view(-1, k)
        best[tied], order = rows.gather(1, first).sort(dim=1, descending=True, stable=True)
        place[tied] = first.gather(1, order)
    return best, place


def _largest_keys(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the same without branching on values, which would synchronise: each score and its index form one integer key.

    The upper half of a key is the score's bits, with the lower 31 flipped if it is negative, so that they are ordered as the
    scores are. The lower half is larger for an earlier index.
    """
    bits = (scores + 0.0).contiguous().view(torch.int32)  # turns -0 into 0
    rising = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    n = scores.shape[-1]
    key = (rising << 32) + torch.arange(n - 1, -1, -1, device=scores.device)
    place = n - 1 - (key.topk(k, dim=-1).values & 0xFFFFFFFF)
    return scores.gather(-1, place), place


def _candidates(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest scores of each row in falling order, and their indices.

    The scores form n / 8 groups of eight. The k groups with the largest maxima contain the k largest scores, so only their 8 k
    scores are searched. This takes half the time where n is much larger than 8 k. Fewer scores form groups of four.
    """
    n = scores.shape[-1]
    size = next((size for size in (GROUP, GROUP // 2) if size and n // size >= 4 * k), None)
    if size is None:
        best, place = scores.topk(k, dim=-1)
        return best, place
    groups = n // size
    # Group i has indices i, i + groups, i + 2 groups, ..., so the maximum reads contiguous memory. The rest is always searched.
    highest = scores[..., : groups * size].unflatten(-1, (size, groups)).amax(-2)
    found = highest.topk(k, dim=-1, sorted=False).indices
    every = torch.arange(0, groups * size, groups, device=scores.device)
    rest = torch.arange(groups * size, n, device=scores.device).expand(*scores.shape[:-1], -1)
    place = torch.cat([(found.unsqueeze(-2) + every.unsqueeze(-1)).flatten(-2), rest], dim=-1)
    best, which = scores.gather(-1, place).topk(k, dim=-1)
    return best, place.gather(-1, which)


@torch.no_grad()
def bernoulli(cohort: Cohort, left: Tensor, right: Tensor, degree: int, draws: Draws) -> Chosen:
    """Draw each pair (u, v) with probability proportional to max(left_u . right_v, 0), `degree` pairs per node on average.

    A probability is at most one, so a node with few positive or very unequal scores gets fewer pairs.

    The n random numbers of row u depend only on its client and its position there.
    """
    source, target = [], []
    bounds = zip(cohort.start.tolist(), cohort.sizes, strict=True)
    for first, nodes in bounds:
        own = slice(first, first + nodes)
        for start, scores in _chunks(left[own].unsqueeze(0), right[own].unsqueeze(0), product):
            chance = torch.relu(scores[0])
            chance = (chance * (degree / chance.sum(1, keepdim=True).clamp_min(1e-6))).clamp_max_(1.0)
            rows = _Part(cohort, first + start, len(chance))
            word = draws.words(rows, nodes, BERNOULLI_LAYER)
            u, v = torch.nonzero(word.float().mul_(2.0**-32).add_(0.5) < chance, as_tuple=True)
            source.append(u + first + start)
            target.append(v + first)
    pairs = torch.cat(source), torch.cat(target)
    return Chosen(Links(*pairs, cohort.rows), torch.ones(len(pairs[0]), device=left.device))


def at_random(cohort: Cohort, k: int, draws: Draws) -> Chosen:
    """Draw for each node k nodes of its client, with replacement, each with the same chance."""
    place = draws.below(cohort, cohort.node_count, k, RANDOM_LAYER) + cohort.first_row[cohort.client].unsqueeze(1)
    real = (cohort.position < cohort.node_count[cohort.client]).float()
    own = torch.arange(cohort.rows, device=cohort.device).unsqueeze(1)
    target = torch.where(real.bool().unsqueeze(1), place, own)
    return Chosen(Links.equally_many(target, cohort.rows), real.repeat_interleave(k))


class _Part:
    """Some consecutive rows of a cohort, for `Draws.words`."""

    def __init__(self, rows: Rows, first: int, count: int) -> None:
        self.client, self.position = rows.client[first : first + count], rows.position[first : first + count]


def _chunks(left: Tensor, right: Tensor, score: Score) -> Iterator[tuple[int, Tensor]]:
    """Yield the scores of all rows, some rows at a time: (first row, [b, r, n])."""
    clients, length, _ = right.shape
    step = max(1, (CHUNK_CUDA if right.is_cuda else CHUNK) // (clients * length))
    for start in range(0, left.shape[1], step):
        yield start, score(left[:, start : start + step], right)


def _together(cohort: Cohort, left: Tensor, right: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield batches of clients to process at once: (first row [b], nodes [b], left [b, n, D], right [b, n, D])."""
    first, sizes = cohort.first_row, cohort.node_count
    if cohort.length is not None:
        shape = (cohort.clients, cohort.length, -1)
        yield first, sizes, left.view(shape), right.view(shape)
        return
    for m, (mine, theirs) in enumerate(zip(left.split(cohort.spans), right.split(cohort.spans), strict=True)):
        yield first[m : m + 1], sizes[m : m + 1], mine.unsqueeze(0), theirs.unsqueeze(0)
