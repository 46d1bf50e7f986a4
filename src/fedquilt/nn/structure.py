"""Structure learners: compute a latent graph from a client's features and graph by a learned metric.

A graph convolution gives every node a representation z_u. The score of a pair is a function of z_u and z_v. The k best-scored
nodes are a node's latent neighbours (`fedquilt.nn.latent_graph`). Their weights are the scores, made positive and divided by
their sum. The learners differ in the score:

    heads      mean over heads h of cos(left_h * z_u, right_h * z_v)   (FedHERO's eq. 3; Chen et al., 2020, with left = right)
    cosine     cos(z_u, z_v)
    attention  (Q z_u) . (K z_v) / sqrt(d), weights by a softmax
    gat        LeakyReLU(source . z_u + target . z_v) on the given edges, weights by a softmax (Velickovic et al., 2018)
    glcn       ReLU(a . |z_u - z_v|), weights by a softmax (Jiang et al., 2019)
    gaug       sigmoid(z_u . z_v), mixed half and half with the given graph (Zhao et al., 2021)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws
from fedquilt.nn.edges import Links
from fedquilt.nn.latent_graph import Chosen, bernoulli, top_k
from fedquilt.nn.layers import SLOPE, Weights, gcn_first
from fedquilt.nn.models import Shapes
from fedquilt.nn.routing import unit

Learner = Literal["heads", "cosine", "attention", "gat", "glcn", "gaug"]
GIVEN = 0.5  # share of the given graph in GAug's mixture
SAMPLED = ("heads", "cosine")  # learners whose scores can be used as probabilities


@dataclass(frozen=True, eq=False)
class Latent:
    """A latent graph.

    Attributes:
        links: its pairs (u, v).
        weight: [E], the weight of v at u; the weights of a node that has neighbours sum to one.
        given: share of the mean over the given graph's neighbours in the result of `propagate`; the mean is zero for a node
            without neighbours.
    """

    links: Links
    weight: Tensor
    given: float = 0.0

    def propagate(self, cohort: Cohort, z: Tensor) -> Tensor:
        """Compute sum_v weight_uv z_v at every u, mixed with the mean over given neighbours: [R, H] -> [R, H]."""
        learned = self.links.sum(self.weight, z)
        return learned if not self.given else (1.0 - self.given) * learned + self.given * (cohort.mean @ z)


def learner_shapes(kind: Learner, features: int, hidden: int, heads: int) -> Shapes:
    """The shapes of a learner's weights: graph convolution and metric. GLCN has no bias, which cancels in differences."""
    metric: dict[Learner, Shapes] = {
        "heads": {"left": (heads, hidden), "right": (heads, hidden)},
        "attention": {"query": (hidden, hidden), "key": (hidden, hidden)},
        "gat": {"source": (hidden, 1), "target": (hidden, 1)},
        "glcn": {"scale": (hidden, 1)},
    }
    bias: Shapes = {} if kind == "glcn" else {"bias": (hidden,)}
    return {"weight": (features, hidden)} | bias | metric.get(kind, {})


def start_metric(kind: Learner, weights: Weights) -> None:
    """Change freshly drawn weights in place to the values from which learning starts.

    The scales of eq. 3 start around one, where the metric is a plain cosine. Around zero, half of them would be negative, and
    the first similarities would be noise.
    """
    if kind == "heads":
        for side in ("left", "right"):
            weights[side].add_(1.0)


def learn(kind: Learner, cohort: Cohort, w: Weights, k: int) -> Latent:
    """Compute the latent graph of the k best neighbours, differentiable in `w`."""
    if kind == "glcn":
        return _learn_glcn(cohort, w, k)
    z = gcn_first(cohort, w["weight"], w["bias"])
    if kind == "gat":
        chosen = cohort.once("neighbours and self", neighbours_and_self)
        u, v = chosen.links.source, chosen.links.target
        score = cohort.multiply(z, w["source"]).squeeze(1)[u] + cohort.multiply(z, w["target"]).squeeze(1)[v]
        return Latent(chosen.links, chosen.softmax(F.leaky_relu(score, SLOPE)))
    left, right = factors(kind, cohort, z, w)
    chosen = top_k(cohort, left, right, k)
    score = chosen.links.dot(left, right)
    if kind == "attention":
        return Latent(chosen.links, chosen.softmax(score))
    if kind == "gaug":
        return Latent(chosen.links, chosen.normalised(torch.sigmoid(score)), GIVEN)
    return Latent(chosen.links, chosen.normalised(torch.relu(score)))


def _learn_glcn(cohort: Cohort, w: Weights, k: int) -> Latent:
    """Score by a . |z_u - z_v|, computed as an L1 distance over positive entries of a minus one over negative entries."""
    z, scale = cohort.smoothed @ w["weight"], w["scale"].squeeze(2)[cohort.client]
    both = torch.cat([z * torch.relu(scale), z * torch.relu(-scale)], dim=1)
    chosen = top_k(cohort, both, both, k, signed_distance)
    gap = (both[chosen.links.source] - both[chosen.links.target]).abs()
    plus, minus = gap.chunk(2, dim=1)
    return Latent(chosen.links, chosen.softmax(torch.relu((plus - minus).sum(1))))


@torch.no_grad()
def sample(kind: Learner, cohort: Cohort, w: Weights, degree: int, draws: Draws) -> Latent:
    """Draw a latent graph: edges have probabilities proportional to their scores, `degree` per node on average (Table 9)."""
    left, right = factors(kind, cohort, gcn_first(cohort, w["weight"], w["bias"]), w)
    chosen = bernoulli(cohort, left, right, degree, draws)
    return Latent(chosen.links, chosen.normalised(chosen.real))


def factors(kind: Learner, cohort: Cohort, z: Tensor, w: Weights) -> tuple[Tensor, Tensor]:
    """Compute left and right with score_uv = left_u . right_v: z [R, d] -> [R, D], [R, D]."""
    if kind == "heads":
        return scaled(cohort, z, w["left"]), scaled(cohort, z, w["right"])
    if kind == "attention":
        return cohort.multiply(z, w["query"]) / z.shape[1] ** 0.5, cohort.multiply(z, w["key"])
    if kind == "cosine":
        z = unit(z)
    return z, z


def scaled(cohort: Cohort, z: Tensor, scale: Tensor) -> Tensor:
    """Concatenate the heads' vectors scale_h * z_u, each of length one: [R, d], [M, heads, d] -> [R, heads d].

    Their inner products are sums of cosines over heads. The mean would need a division by the number of heads, which cancels
    when weights are normalised.
    """
    _, heads, width = scale.shape
    if cohort.length is not None:  # one broadcast product, whose gradient is a sum
        each = z.view(cohort.clients, cohort.length, 1, width) * scale.unsqueeze(1)
    else:
        each = z.unsqueeze(1) * scale[cohort.client]
    return unit(each.reshape(-1, heads, width)).flatten(1)


def signed_distance(left: Tensor, right: Tensor) -> Tensor:
    """Compute ||left - right||_1 of the first half of the columns minus that of the second half.

    Shapes: [b, r, 2 d], [b, n, 2 d] -> [b, r, n].
    """
    plus, minus = (torch.cdist(a, b, p=1) for a, b in zip(left.chunk(2, dim=2), right.chunk(2, dim=2), strict=True))
    return plus - minus


def neighbours_and_self(cohort: Cohort) -> Chosen:
    """Return the given edges and self-loops as pairs (u, v): v is u's neighbour or u itself."""
    v, u = cohort.edges  # sorted by u
    return Chosen(Links(u, v, cohort.rows), torch.ones(len(u), device=u.device))
