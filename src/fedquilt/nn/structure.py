"""Structure learners: compute a latent graph from a client's features and graph by a learned metric.

A graph convolution gives every node a representation z_u. The score of a pair is a function of z_u and z_v. The k best-scored
nodes are a node's latent neighbours (`fedquilt.nn.latent_graph`). Their weights are the scores, made positive and divided by
their sum. The learners differ in the score:

    heads      mean over heads h of cos(left_h * z_u, right_h * z_v)   (FedHERO's eq. 3; Chen et al., 2020, with left = right)
    cosine     cos(z_u, z_v)
    attention  (Q z_u) . (K z_v) / sqrt(d), weights by a softmax
    gat        LeakyReLU(source . z_u + target . z_v) on the given edges, weights by a softmax (Velickovic et al., 2018), times
               the given edges' own weights where they have any
    glcn       ReLU(a . |z_u - z_v|), weights by a softmax (Jiang et al., 2019)
    gaug       sigmoid(z_u . z_v), mixed half and half with the given graph (Zhao et al., 2021)

Three more have nothing to learn; they say what a learned graph is worth:

    knn        cos(x_u, x_v) of the features
    random     k nodes drawn once, of equal weight
    self       the node itself is its only latent neighbour
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws
from fedquilt.cohort.features import FeatureMatrix
from fedquilt.cohort.sparse import SparseMatrix
from fedquilt.devices.device import on_host
from fedquilt.graphs.arrays import Features
from fedquilt.graphs.prepare import normalise
from fedquilt.nn.edges import Links
from fedquilt.nn.latent_graph import Chosen, alike_nodes, at_random, bernoulli, top_k, top_k_alike
from fedquilt.nn.layers import SLOPE, Weights, linear
from fedquilt.nn.models import Shapes
from fedquilt.nn.routing import EPSILON, unit

Learner = Literal["heads", "cosine", "attention", "gat", "glcn", "gaug", "knn", "random", "self"]
UNLEARNED = ("knn", "random", "self")  # latent graphs that have no weights
GIVEN = 0.5  # share of the given graph in GAug's mixture
SAMPLED = ("heads", "cosine")  # learners whose scores can be used as probabilities


@dataclass(frozen=True)
class Form:
    """What FedHERO's paper leaves open about the latent graph, or cannot mean as it is printed.

    Attributes:
        k: latent neighbours a node.
        activation: whether a ReLU follows the learner's graph convolution.
        row_normalise: whether the features of a node are divided by their sum.
        binary: whether all k neighbours weigh the same, as in eq. 4; the gradient is that of the scores (straight-through).
        symmetric: whether `Latent.propagate` is a GCN's, with self-loops, or a mean over latent neighbours.
    """

    k: int
    activation: bool = False
    row_normalise: bool = False
    binary: bool = False
    symmetric: bool = False

    def own(self, cohort: Cohort) -> FeatureMatrix:
        """The features X."""
        found: FeatureMatrix = cohort.once("row-normalised", _normalised) if self.row_normalise else cohort.x
        return found

    def smoothed(self, cohort: Cohort) -> FeatureMatrix:
        """The features after one propagation over the given graph, constant."""
        if not self.row_normalise:
            return cohort.smoothed
        found: FeatureMatrix = cohort.once("row-normalised, smoothed", lambda c: _normalised(c, c.gcn))
        return found


def _normalised(cohort: Cohort, operator: SparseMatrix | None = None) -> FeatureMatrix:
    return FeatureMatrix(cohort, [normalise(client.graph.x) for client in cohort.members], operator)


@dataclass(frozen=True, eq=False)
class Latent:
    """A latent graph A~.

    Attributes:
        links: its pairs (u, v).
        weight: [E], the weight of v at u; the weights of a node that has neighbours sum to one.
        given: share of the mean over the given graph's neighbours in the result of `propagate`; the mean is zero for a node
            without neighbours.
        degree: None: `propagate` is a mean over latent neighbours. Otherwise it is a GCN's over S = degree (A~ + A~^T) / 2,
            which has the ones of eq. 4 where a node's `degree` neighbours weigh the same.
    """

    links: Links
    weight: Tensor
    given: float = 0.0
    degree: int | None = None

    def propagate(self, cohort: Cohort, z: Tensor) -> Tensor:
        """Compute sum_v A~_uv z_v at every u, or D^-1/2 (S + I) D^-1/2 z, mixed with the mean over given neighbours.

        Shapes: [R, H] -> [R, H].
        """
        learned = self.links.sum(self.weight, z) if self.degree is None else self._gcn(self.degree, z)
        return learned if not self.given else (1.0 - self.given) * learned + self.given * (cohort.mean @ z)

    def propagate_training(self, cohort: Cohort, z: Tensor) -> Tensor:
        """Compute `propagate` at the training nodes only: [R, H] -> [T, H]."""
        rows, each = cohort.training, self.links.each
        if each is None or self.degree is not None:
            return self.propagate(cohort, z).index_select(0, rows.index)
        target, weight = (t.view(-1, each).index_select(0, rows.index) for t in (self.links.target, self.weight))
        learned = Links.equally_many(target, cohort.rows).sum(weight.flatten(), z)
        return learned if not self.given else (1.0 - self.given) * learned + self.given * (rows.mean @ z)

    def _gcn(self, degree: int, z: Tensor) -> Tensor:
        turned, order = self.links.turned
        half = 0.5 * degree
        ends = torch.zeros(self.links.rows, device=z.device)
        ends = ends.index_add(0, self.links.source, self.weight).index_add(0, self.links.target, self.weight)
        scale = (1.0 + half * ends).rsqrt().unsqueeze(1)
        z = scale * z
        both = self.links.sum(self.weight, z) + turned.sum(self.weight[order], z)
        return scale * (half * both + z)


def learner_shapes(kind: Learner, features: int, hidden: int, heads: int) -> Shapes:
    """The shapes of a learner's weights: graph convolution and metric. GLCN has no bias, which cancels in differences."""
    metric: dict[Learner, Shapes] = {
        "heads": {"left": (heads, hidden), "right": (heads, hidden)},
        "attention": {"query": (hidden, hidden), "key": (hidden, hidden)},
        "gat": {"source": (hidden, 1), "target": (hidden, 1)},
        "glcn": {"scale": (hidden, 1)},
    }
    if kind in UNLEARNED:
        return {}
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


def learn(kind: Learner, cohort: Cohort, w: Weights, form: Form, draws: Draws | None = None) -> Latent:
    """Compute the latent graph, differentiable in `w`; `draws` are for the random one."""
    chosen, weight = _weighted(kind, cohort, w, form, draws)
    if form.binary:
        weight = chosen.normalised(chosen.real) + (weight - weight.detach())
    given = GIVEN if kind == "gaug" else 0.0
    return Latent(chosen.links, weight, given, form.k if form.symmetric else None)


def _weighted(kind: Learner, cohort: Cohort, w: Weights, form: Form, draws: Draws | None) -> tuple[Chosen, Tensor]:
    """Choose the pairs; return them and their weights [E], which sum to one at a node."""
    if kind in UNLEARNED:
        chosen, values = cohort.once(("latent graph", kind, form.k), lambda c: _unlearned(kind, c, form.k, draws))
        return chosen, chosen.normalised(values)
    if kind == "glcn":
        chosen, score = _score_glcn(cohort, w, form)
        return chosen, chosen.softmax(score)
    z = represent(cohort, w, form)
    if kind == "gat":
        chosen = cohort.once("neighbours and self", neighbours_and_self)
        u, v = chosen.links.source, chosen.links.target
        score = cohort.multiply(z, w["source"]).squeeze(1)[u] + cohort.multiply(z, w["target"]).squeeze(1)[v]
        score = F.leaky_relu(score, SLOPE)
        return chosen, chosen.softmax(score if cohort.edge_weights is None else score + cohort.edge_weights.log())
    features, alike = narrow_features(kind, cohort, w, form), None
    if features is None:
        left, right = factors(kind, cohort, z, w)
    else:
        left, right = narrow_factors(cohort, features, z, w)
        if on_host(left):
            alike = cohort.once(("alike nodes", form.row_normalise), lambda c: alike_nodes(c, features))
    chosen = top_k(cohort, left, right, form.k) if alike is None else top_k_alike(cohort, left, right, form.k, alike)
    score = chosen.links.dot(left, right)
    if kind == "attention":
        return chosen, chosen.softmax(score)
    return chosen, chosen.normalised(torch.sigmoid(score) if kind == "gaug" else torch.relu(score))


def represent(cohort: Cohort, w: Weights, form: Form) -> Tensor:
    """Compute the learner's graph convolution D^-1/2 (A + I) D^-1/2 X W + b, with or without a ReLU: [R, d]."""
    z = linear(cohort, form.smoothed(cohort), w["weight"], w["bias"])
    return torch.relu(z) if form.activation else z


def _score_glcn(cohort: Cohort, w: Weights, form: Form) -> tuple[Chosen, Tensor]:
    """Score by a . |z_u - z_v|, computed as an L1 distance over positive entries of a minus one over negative entries."""
    z, scale = form.smoothed(cohort) @ w["weight"], w["scale"].squeeze(2)[cohort.client]
    z = torch.relu(z) if form.activation else z
    both = torch.cat([z * torch.relu(scale), z * torch.relu(-scale)], dim=1)
    chosen = top_k(cohort, both, both, form.k, signed_distance)
    gap = (both[chosen.links.source] - both[chosen.links.target]).abs()
    plus, minus = gap.chunk(2, dim=1)
    return chosen, torch.relu((plus - minus).sum(1))


@torch.no_grad()
def _unlearned(kind: Learner, cohort: Cohort, k: int, draws: Draws | None) -> tuple[Chosen, Tensor]:
    """The pairs of a latent graph without weights, and their values: constant."""
    if kind == "self":
        every = torch.arange(cohort.rows, device=cohort.device).unsqueeze(1)
        chosen = Chosen(Links.equally_many(every, cohort.rows), torch.ones(cohort.rows, device=cohort.device))
        return chosen, chosen.real
    if kind == "random":
        assert draws is not None
        chosen = at_random(cohort, k, draws)
        return chosen, chosen.real
    x = unit(cohort.rows_of([torch.from_numpy(_dense(client.graph.x)) for client in cohort.members], 0.0))
    chosen = top_k(cohort, x, x, k)
    return chosen, torch.relu(chosen.links.dot(x, x))


def _dense(x: Features) -> np.ndarray:
    return np.asarray(x if isinstance(x, np.ndarray) else x.toarray(), dtype=np.float32)


@torch.no_grad()
def sample(kind: Learner, cohort: Cohort, w: Weights, form: Form, draws: Draws) -> Latent:
    """Draw a latent graph: edges have probabilities proportional to their scores, k per node on average (Table 9)."""
    left, right = factors(kind, cohort, represent(cohort, w, form), w)
    chosen = bernoulli(cohort, left, right, form.k, draws)
    return Latent(chosen.links, chosen.normalised(chosen.real), degree=form.k if form.symmetric else None)


def factors(kind: Learner, cohort: Cohort, z: Tensor, w: Weights) -> tuple[Tensor, Tensor]:
    """Compute left and right with score_uv = left_u . right_v: z [R, d] -> [R, D], [R, D]."""
    if kind == "heads":
        return scaled(cohort, z, w["left"]), scaled(cohort, z, w["right"])
    if kind == "attention":
        return cohort.multiply(z, w["query"]) / z.shape[1] ** 0.5, cohort.multiply(z, w["key"])
    if kind == "cosine":
        z = unit(z)
    return z, z


def narrow_features(kind: Learner, cohort: Cohort, w: Weights, form: Form) -> Tensor | None:
    """The propagated features and a column of ones, X^ [R, F + 1], where `narrow_factors` saves time; else None."""
    if kind != "heads" or form.activation or 2 * (cohort.features + 1) > w["weight"].shape[2]:
        return None
    x = form.smoothed(cohort).dense
    if x is None:
        return None
    found: Tensor = cohort.once(("narrow features", form.row_normalise), lambda c: F.pad(x, (0, 1), value=1.0))
    return found


def narrow_factors(cohort: Cohort, x: Tensor, z: Tensor, w: Weights) -> tuple[Tensor, Tensor]:
    """Compute left and right of "heads" in F + 1 columns a head: x [R, F + 1], z [R, d] -> [R, heads (F + 1)] each.

    With z_u = x_u B, where B is the weight above the bias, a head's inner product is x_u (B diag(left right) B^T) x_v. So
    left_u = x_u B diag(left right) B^T / |left z_u| and right_v = x_v / |right z_v| have the same products as `scaled`.
    """
    heads, own = w["left"].shape[1], torch.cat([w["weight"], w["bias"].unsqueeze(1)], dim=1)  # [M, F + 1, d]
    metric = (own.unsqueeze(1) * (w["left"] * w["right"]).unsqueeze(2)) @ own.mT.unsqueeze(
        1
    )  # [M, heads, F + 1, F + 1]
    squares = cohort.multiply(z.square(), torch.cat([w["left"], w["right"]], dim=1).square().mT)  # [R, 2 heads]
    inverse = torch.where(squares > EPSILON**2, squares, 1.0).rsqrt().unsqueeze(2)
    left = cohort.multiply(x, metric.transpose(1, 2).flatten(2)).unflatten(1, (heads, -1)) * inverse[:, :heads]
    return left.flatten(1), (x.unsqueeze(1) * inverse[:, heads:]).flatten(1)


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
