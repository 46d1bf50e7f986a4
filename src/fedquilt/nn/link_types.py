"""Latent types of links: edges clustered by what their two ends are, and a graph convolution for each type (FedLIT).

A link of nodes u and v is the vector [h_u, h_v], or [h_v, h_u]: the order that fits better. It belongs to the type whose
centroid [a, b] it has the largest cosine with. Scores are sums of two products of nodes, h_u . a + h_v . b, so that nothing of
the size links x width is made. Shapes are fixed and nothing is read on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.nn import layers
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.edges import Edges
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Output, Shapes, activate

CENTROIDS = "centroids"
TINY = 1e-12
FIRST_STEPS = 10  # of clustering, before round 0


def links_of(cohort: Cohort) -> Edges:
    """The links of a cohort, each in both directions, made once."""
    found: Edges = cohort.once("links", Edges)
    return found


@dataclass(frozen=True, eq=False)
class Assignment:
    """The E-step.

    Attributes:
        kind: [E] int64, the type of each link; the same in both directions.
        forward: [E] 1.0 where the link is read in this direction, 0.5 where both directions fit alike, else 0.0.
    """

    kind: Tensor
    forward: Tensor


@torch.no_grad()
def assign(cohort: Cohort, h: Tensor, centroids: Tensor) -> Assignment:
    """Give every link the type of the nearest centroid: h [R, H], centroids [M, k, 2 H]."""
    scores = _scores(cohort, h, centroids)
    forward, back = scores
    kind = torch.maximum(forward, back).argmax(1)
    mine, other = (side.gather(1, kind.unsqueeze(1)).squeeze(1) for side in scores)
    return Assignment(kind, 0.5 * (1.0 + torch.sign(mine - other)))


def _scores(cohort: Cohort, h: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """What each link and centroid have in common, [h_u, h_v] . c / |c| and [h_v, h_u] . c / |c|: [E, k] each."""
    links = links_of(cohort)
    unit = F.normalize(centroids, dim=2, eps=TINY)
    first, second = (cohort.multiply(h, side.mT.contiguous()) for side in unit.chunk(2, dim=2))
    u, v = links.source, links.target
    return first[u] + second[v], first[v] + second[u]


@torch.no_grad()
def centre(cohort: Cohort, h: Tensor, found: Assignment, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """The M-step: the mean of each type's links, [M, k, 2 H], and how many there are, [M, k]; a type without keeps its own."""
    kinds = centroids.shape[1]
    member = (found.kind.unsqueeze(1) == torch.arange(kinds, device=h.device)).to(h.dtype)
    ends = torch.stack([member * found.forward.unsqueeze(1), member * (1.0 - found.forward).unsqueeze(1)], dim=1)
    # Multiples of a half, whose sums are exact in any order.
    at = torch.zeros(cohort.rows, 2, kinds, device=h.device).index_add(0, links_of(cohort).source, ends)
    count = _by_client(cohort, at[:, 0], torch.ones_like(h[:, :1])).squeeze(2)
    sums = torch.cat([_by_client(cohort, at[:, side], h) for side in (0, 1)], dim=2)
    mean = sums / count.clamp_min(1.0).unsqueeze(2)
    return torch.where(count.unsqueeze(2) > 0, mean, centroids), count


@torch.no_grad()
def nodes_by_type(cohort: Cohort, found: Assignment, kinds: int) -> Tensor:
    """How many nodes of each client have a link of each type, [M, k]; a node without links counts in all types."""
    member = (found.kind.unsqueeze(1) == torch.arange(kinds, device=cohort.device)).float()
    has = torch.zeros(cohort.rows, kinds, device=cohort.device).index_add(0, links_of(cohort).source, member) > 0
    node = torch.zeros(cohort.rows, 1, device=cohort.device).index_fill(0, cohort.nodes, 1.0)
    return _by_client(cohort, (has | ~has.any(1, keepdim=True)).float(), node).squeeze(2)


def _by_client(cohort: Cohort, left: Tensor, right: Tensor) -> Tensor:
    """left_m^T right_m of every client: [R, k], [R, H] -> [M, k, H]."""
    if cohort.length is not None:
        shape = (cohort.clients, cohort.length, -1)
        return left.view(shape).mT @ right.view(shape)
    parts = zip(left.split(cohort.spans), right.split(cohort.spans), strict=True)
    return torch.stack([mine.T @ other for mine, other in parts])


@torch.no_grad()
def cluster(cohort: Cohort, h: Tensor, centroids: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """E-step and M-step in turn, the M-step last: centroids [M, k, 2 H] and links of each type [M, k]."""
    count = torch.zeros(centroids.shape[:2], device=h.device)
    for _ in range(steps):
        centroids, count = centre(cohort, h, assign(cohort, h, centroids), centroids)
    return centroids, count


@torch.no_grad()
def first_centroids(cohort: Cohort, h: Tensor, kinds: int) -> tuple[Tensor, Tensor]:
    """Centroids to start from, clustered: the mean link, then always the link that is least like those chosen so far."""
    links, (clients, width) = links_of(cohort), (cohort.clients, h.shape[1])
    if not links.count:
        return torch.zeros(clients, kinds, 2 * width, device=h.device), torch.zeros(clients, kinds, device=h.device)
    u, v = links.source.long(), links.target.long()
    client = cohort.client[u]
    degree = torch.zeros(cohort.rows, 1, device=h.device).index_add(0, u, torch.ones_like(h[:1, :1]).expand(len(u), 1))
    total = _by_client(cohort, degree, torch.ones_like(h[:, :1]))
    mean = (_by_client(cohort, degree, h) / total.clamp_min(1.0)).repeat(1, 1, 2)
    chosen = mean
    size = (h[u].square().sum(1) + h[v].square().sum(1)).sqrt().clamp_min(TINY)
    places = torch.arange(links.count, device=h.device)
    for _ in range(kinds - 1):
        alike = torch.maximum(*_scores(cohort, h, chosen)).amax(1) / size
        least = torch.full((clients,), torch.inf, device=h.device).scatter_reduce(0, client, alike, "amin")
        none = torch.full((clients,), links.count, device=h.device)
        place = none.scatter_reduce(0, client, torch.where(alike == least[client], places, links.count), "amin")
        there = place.clamp_max(links.count - 1)
        link = torch.where((place < links.count).unsqueeze(1), torch.cat([h[u[there]], h[v[there]]], dim=1), 0.0)
        chosen = torch.cat([chosen, link.unsqueeze(1)], dim=1)
    return cluster(cohort, h, chosen, FIRST_STEPS)


def orders_of(kinds: int) -> Tensor:
    """All orders of so many types, [k!, k] int64; the first is the one in which they are."""
    return torch.tensor(list(permutations(range(kinds))))


@torch.no_grad()
def matched(centroids: Tensor, common: Tensor, orders: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Match the types of n clients with common ones, one to one, so that the sum of cosines is the largest.

    Args:
        centroids: [n, k, 2 H]; their two halves may be exchanged, as links have no direction.
        common: [k, 2 H].
        orders: [k!, k] what `orders_of` gives.

    Returns:
        [n, k] int64 which of a client's types is the j-th common one; the centroids in that order, their halves exchanged where
        that fits better; and the cosines [n, k] of each with the common one.
    """
    kinds = len(common)
    turned = torch.cat(centroids.chunk(2, dim=2)[::-1], dim=2)
    target = F.normalize(common, dim=1, eps=TINY).T
    plain, other = (F.normalize(each, dim=2, eps=TINY) @ target for each in (centroids, turned))
    alike = torch.maximum(plain, other)  # [n, own, common]
    column = torch.arange(kinds, device=common.device)
    order = orders[alike[:, orders, column].sum(2).argmax(1)]
    client = torch.arange(len(centroids), device=common.device).unsqueeze(1)
    better = (other > plain)[client, order, column].unsqueeze(2)
    return order, torch.where(better, turned[client, order], centroids[client, order]), alike[client, order, column]


@dataclass(frozen=True)
class TypedGcn:
    """A shared projection of the features, graph convolutions for each type of links, and a classifier of their sum.

    h = X W + b; each type has its own layers z_l = relu(D_c^-1/2 (A_c + I) D_c^-1/2 z_{l-1} W_cl + b_cl) from z_0 = h on, where
    A_c are the links of type c. A node counts for itself in every type. Weights have types along their first axis.
    """

    features: int
    hidden: int
    outputs: int
    layers: int
    kinds: int

    def shapes(self) -> Shapes:
        """The weights, and the centroids [k, 2 H], which are not trained by gradients."""
        wide = self.hidden
        out: Shapes = {"projection.weight": (self.features, wide), "projection.bias": (wide,)}
        for layer in range(1, self.layers + 1):
            out |= {f"conv{layer}.weight": (self.kinds, wide, wide), f"conv{layer}.bias": (self.kinds, wide)}
        out |= {"classifier.weight": (wide, self.outputs), "classifier.bias": (self.outputs,)}
        return out | {CENTROIDS: (self.kinds, 2 * wide)}

    def project(self, cohort: Cohort, weights: Weights) -> Tensor:
        """X W + b, by which links are told apart: [R, H]."""
        return layers.linear(cohort, cohort.x, weights["projection.weight"], weights["projection.bias"])

    def __call__(self, cohort: Cohort, weights: Weights, dropout: Dropout | None = None) -> Output:
        """Compute the outputs of every row, with dropout if given."""
        z = self.summed(cohort, weights, dropout)
        return Output(layers.linear(cohort, z, weights["classifier.weight"], weights["classifier.bias"]), z)

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the outputs at the training nodes only (the rows of `cohort.training`), with dropout."""
        rows = cohort.training
        z = self.summed(cohort, weights, dropout)[rows.index]
        return Output(layers.linear(rows, z, weights["classifier.weight"], weights["classifier.bias"]), z)

    def summed(self, cohort: Cohort, weights: Weights, dropout: Dropout | None) -> Tensor:
        """The sum over types of their last layers: [R, H]."""
        links, h = links_of(cohort), self.project(cohort, weights)
        kind = assign(cohort, h.detach(), weights[CENTROIDS]).kind
        out = []
        for c in range(self.kinds):
            share, loop = operator(cohort, (kind == c).to(h.dtype))
            z = h
            for layer in range(1, self.layers + 1):
                product = cohort.multiply(z, weights[f"conv{layer}.weight"][:, c])
                product = links.sum(share, product) + loop * product
                z = cohort.add(product, weights[f"conv{layer}.bias"][:, c])
                z = activate(cohort, z, dropout, (layer - 1) * self.kinds + c)
            out.append(z)
        return torch.stack(out).sum(0) if len(out) > 1 else out[0]


@torch.no_grad()
def operator(cohort: Cohort, member: Tensor) -> tuple[Tensor, Tensor]:
    """D^-1/2 (A + I) D^-1/2 of the links that are members, [E] ones and zeros: values of links [E] and of loops [R, 1]."""
    links = links_of(cohort)
    weight = member if links.weight is None else member * links.weight
    degree = 1.0 + links.sum(weight, torch.ones(cohort.rows, 1, device=member.device))
    scale = degree.rsqrt()
    flat = scale.squeeze(1)
    return weight * flat[links.source] * flat[links.target], scale.square()
