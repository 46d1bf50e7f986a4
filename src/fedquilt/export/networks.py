"""Personal models as plain PyTorch modules on PyTorch Geometric's `Data`.

This file needs torch and nothing else, nothing of fedquilt either: where fedquilt is not installed, copy it.

A network's forward pass takes an object with `x` [n, F] (dense or sparse) and `edge_index` [2, E] and gives logits [n, C].
Edges are undirected: direction, repetition and edges from a node to itself do not matter. Weights have the names they have
in fedquilt, matrices are [in, out]. `config` holds what the network was made with, in JSON's types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NETWORKS: dict[str, type[Network]] = {}
SLOPE = 0.2  # of graph attention's LeakyReLU
TINY, SMALL = 1e-8, 1e-6  # lengths up to which what is left is rounding
COLUMNS = 128  # features that are spread at a time, where they are spread in double precision
CHUNK = 2**20  # scores of pairs held at once
GIVEN = 0.5  # share of the given graph in GAug's mixture


class Network(nn.Module):
    """What all have in common.

    Attributes:
        config: what the network was made with.
        class_names: what the C classes are called, where they have names.
    """

    config: dict[str, Any]
    class_names: tuple[str, ...] | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        NETWORKS[cls.__name__] = cls

    def __init__(self, normalise: bool = False, **config: Any) -> None:
        """With `normalise`, each node's features are divided by the sum of their absolute values."""
        super().__init__()
        self.config = {"normalise": normalise, **config}
        self.class_names = None

    def forward(self, data: Any) -> Tensor:
        """The logits of every node, [n, C]."""
        x: Tensor = data.x
        x = x.float() if x.layout == torch.strided else x.to_sparse_coo().float().coalesce()
        if self.config["normalise"]:
            x = _normalised(x)
        return self.logits(x, Neighbours(data.edge_index.to(x.device), x.shape[0]))

    def logits(self, x: Tensor, graph: Neighbours) -> Tensor:
        """The logits of every node from its features, dense or COO, and its neighbours."""
        raise NotImplementedError


class Neighbours:
    """An undirected graph: both directions of every edge once, sorted, no self-loops.

    Attributes:
        u, v: [E] each. degree: [n].
    """

    def __init__(self, edge_index: Tensor, nodes: int) -> None:
        a, b = edge_index[:, edge_index[0] != edge_index[1]]
        key = torch.unique(torch.cat([a * nodes + b, b * nodes + a]))
        self.nodes, self.u, self.v = nodes, key // max(nodes, 1), key % max(nodes, 1)
        self.degree = torch.bincount(self.u, minlength=nodes).unsqueeze(1)

    def sum(self, h: Tensor) -> Tensor:
        """The sum over neighbours, [n, H] -> [n, H]."""
        return spread(self.u, self.v, torch.ones_like(self.u, dtype=h.dtype), h)

    def mean(self, h: Tensor) -> Tensor:
        """The mean over neighbours, zero where there is none."""
        return self.sum(h) / self.degree.clamp_min(1).to(h.dtype)

    def gcn(self, h: Tensor) -> Tensor:
        """D^-1/2 (A + I) D^-1/2 h, D the degrees of A + I."""
        # Terms are added in the order of the nodes: two nodes with the same neighbours get the same sum to the last bit.
        u, v = self.with_self()
        scale = (self.degree[:, 0] + 1).to(h.dtype).rsqrt()
        return spread(u, v, scale[u] * scale[v], h)

    def normalised(self, h: Tensor) -> Tensor:
        """D^-1/2 A D^-1/2 h, D the degrees of A."""
        scale = self.degree.clamp_min(1).to(h.dtype).rsqrt()
        return scale * self.sum(scale * h)

    def with_self(self) -> tuple[Tensor, Tensor]:
        """The pairs (u, v), and every node with itself, sorted: [E + n] each."""
        n = max(self.nodes, 1)
        key = torch.cat([self.u * n + self.v, torch.arange(self.nodes, device=self.u.device) * (n + 1)]).sort().values
        return key // n, key % n


class Affine(nn.Module):
    """x W + b."""

    def __init__(self, inside: int, out: int, **extra: tuple[int, ...]) -> None:
        """`extra` are further parameters by name, with their shapes."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inside, out))
        self.bias = nn.Parameter(torch.empty(out))
        for name, shape in extra.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))

    def forward(self, x: Tensor) -> Tensor:
        """[n, in] -> [n, out]."""
        return times(x, self.weight) + self.bias


def times(x: Tensor, weight: Tensor) -> Tensor:
    """x W for dense or sparse x."""
    return torch.sparse.mm(x, weight) if x.is_sparse else x @ weight


def spread(u: Tensor, v: Tensor, weight: Tensor, h: Tensor) -> Tensor:
    """sum_v weight_uv h_v at every u: weight [E], h [n, H] -> [n, H]."""
    matrix = torch.sparse_coo_tensor(torch.stack([u, v]), weight, (h.shape[0], h.shape[0]), check_invariants=False)
    return torch.sparse.mm(matrix, h)


def by_node(u: Tensor, values: Tensor, nodes: int) -> Tensor:
    """values_uv / sum_v values_uv, [E] or [E, heads]; all zero stays zero."""
    total = values.new_zeros(nodes, *values.shape[1:]).index_add(0, u, values)
    return values / total.clamp_min(SMALL)[u]


def softmax_by_node(u: Tensor, score: Tensor, nodes: int) -> Tensor:
    """exp(score_uv) / sum_v exp(score_uv), [E] or [E, heads]."""
    where = u if score.dim() == 1 else u.unsqueeze(1).expand_as(score)
    highest = score.new_full((nodes, *score.shape[1:]), -torch.inf)
    highest = highest.scatter_reduce(0, where, score.detach(), "amax")
    return by_node(u, torch.exp(score - highest[u]), nodes)


def unit(z: Tensor) -> Tensor:
    """z / ||z|| along the last axis; what is shorter than SMALL stays as it is."""
    length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return z / torch.where(length > SMALL, length, 1.0)


def _normalised(x: Tensor) -> Tensor:
    if not x.is_sparse:
        return x / _or_one(x.abs().sum(1, keepdim=True))
    row, values = x.indices()[0], x.values()
    total = values.new_zeros(x.shape[0]).index_add(0, row, values.abs())
    scaled = values / _or_one(total)[row]
    return torch.sparse_coo_tensor(x.indices(), scaled, x.shape, is_coalesced=True, check_invariants=False)


def _or_one(total: Tensor) -> Tensor:
    return torch.where(total > 0, total, 1.0)


def _columns(x: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Some columns at a time, dense and in double precision."""
    for first in range(0, x.shape[1], COLUMNS):
        some = slice(first, min(first + COLUMNS, x.shape[1]))
        if x.is_sparse:
            index = torch.arange(some.start, some.stop, device=x.device)
            yield some, x.index_select(1, index).to_dense().double()
        else:
            yield some, x[:, some].double()


# -- no network at all, and the usual ones ------------------------------------------------------------------------------


class Majority(Network):
    """The most common class of the training nodes, for every node."""

    def __init__(self, classes: int, normalise: bool = False) -> None:
        super().__init__(normalise, classes=classes)
        self.counts = nn.Parameter(torch.empty(classes))

    def logits(self, x: Tensor, graph: Neighbours) -> Tensor:
        """One for that class, zero for the others."""
        return F.one_hot(self.counts.argmax(), len(self.counts)).float().expand(x.shape[0], -1)


class Backbone(Network):
    """Two layers of gcn, sage, gat or mlp with ReLU after each, then a linear classifier."""

    def __init__(self, kind: str, features: int, hidden: int, classes: int, heads: int = 1, normalise: bool = False):
        super().__init__(normalise, kind=kind, features=features, hidden=hidden, classes=classes, heads=heads)
        layer: Callable[[Tensor, Neighbours, Affine], Tensor] = getattr(self, f"_{kind}")
        self._layer = layer
        self.conv1, self.conv2 = (Affine(inside, hidden, **self._extra(inside)) for inside in (features, hidden))
        self.classifier = Affine(hidden, classes)

    def _extra(self, inside: int) -> dict[str, tuple[int, ...]]:
        kind, hidden, heads = (self.config[name] for name in ("kind", "hidden", "heads"))
        if kind == "gat":
            return {"source": (heads, hidden // heads), "target": (heads, hidden // heads)}
        return {"root": (inside, hidden)} if kind == "sage" else {}

    def logits(self, x: Tensor, graph: Neighbours) -> Tensor:
        """The classifier of the second layer."""
        h = torch.relu(self._layer(x, graph, self.conv1))
        return self.classifier(torch.relu(self._layer(h, graph, self.conv2)))

    @staticmethod
    def _mlp(x: Tensor, graph: Neighbours, w: Affine) -> Tensor:
        return w(x)

    @staticmethod
    def _gcn(x: Tensor, graph: Neighbours, w: Affine) -> Tensor:
        """Kipf and Welling (2017)."""
        return graph.gcn(times(x, w.weight)) + w.bias

    @staticmethod
    def _sage(x: Tensor, graph: Neighbours, w: Affine) -> Tensor:
        """Hamilton et al. (2017), the mean."""
        return graph.mean(times(x, w.weight)) + times(x, w.get_parameter("root")) + w.bias

    @staticmethod
    def _gat(x: Tensor, graph: Neighbours, w: Affine) -> Tensor:
        """Velickovic et al. (2018): at v, over its neighbours u and itself; heads side by side."""
        source, target = w.get_parameter("source"), w.get_parameter("target")
        z = times(x, w.weight).view(x.shape[0], *source.shape)
        v, u = graph.with_self()
        score = F.leaky_relu((z * source).sum(-1)[u] + (z * target).sum(-1)[v], SLOPE)
        share = softmax_by_node(v, score, graph.nodes)
        mixed = [spread(v, u, share[:, head], z[:, head]) for head in range(z.shape[1])]
        return torch.cat(mixed, dim=1) + w.bias


# -- Quilt --------------------------------------------------------------------------------------------------------------


class Filters(Network):
    """relu(sum_k c_gk s_k A^k (X W + E) + b) with coefficients c of its own for each group g of units, then a classifier.

    s_k = ||X|| / ||A^k X|| for the basis "scaled"; one for "monomial", and for "chebyshev", which has T_k(A) instead of A^k.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        classes: int,
        order: int,
        groups: int,
        identity: int = 0,
        basis: str = "scaled",
        normalise: bool = False,
    ) -> None:
        super().__init__(
            normalise,
            features=features,
            hidden=hidden,
            classes=classes,
            order=order,
            groups=groups,
            identity=identity,
            basis=basis,
        )
        self.hidden, self.classifier = Affine(features, hidden), Affine(hidden, classes)
        self.filter = nn.Parameter(torch.empty(groups, order + 1))
        self.identity = nn.Parameter(torch.empty(identity, hidden)) if identity else None

    def logits(self, x: Tensor, graph: Neighbours) -> Tensor:
        """The classifier of the hidden layer."""
        basis, hidden = self.config["basis"], self.config["hidden"]
        z = times(x, self.hidden.weight)
        if self.identity is not None:
            z = z + self.identity[torch.arange(len(z), device=z.device) % len(self.identity)]
        terms = self.filter * self._scales(x, graph) if basis == "scaled" else self.filter
        terms = terms[torch.arange(hidden, device=z.device) * len(terms) // hidden].T  # [K + 1, H]
        before, power = torch.zeros_like(z), z
        h = terms[0] * z
        for k, term in enumerate(terms[1:], start=1):
            further = graph.normalised(power)
            before, power = power, 2.0 * further - before if basis == "chebyshev" and k > 1 else further
            h = h + term * power
        return self.classifier(torch.relu(h + self.hidden.bias))

    @torch.no_grad()
    def _scales(self, x: Tensor, graph: Neighbours) -> Tensor:
        """s_k, [K + 1]: zero where nothing is left of X but rounding, ones where there is nothing to begin with."""
        square = torch.zeros(self.config["order"] + 1, dtype=torch.float64, device=x.device)
        for _, part in _columns(x):
            for k in range(len(square)):
                square[k] += part.square().sum()
                part = graph.normalised(part)
        length = square.sqrt()
        scales = torch.where(length > SMALL * length[0], length[0] / _or_one(length), 0.0)
        return torch.where(length[0] > 0, scales, 1.0).float()


# -- FedSSA -------------------------------------------------------------------------------------------------------------


class Spectral(Network):
    """relu((sum_k w_k H_k) W + b) and a classifier, H_k the signals of a polynomial basis.

    `homophily` is that of the edges between the training nodes, from which UniFilter's basis takes its angle.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        classes: int,
        basis: str,
        order: int,
        mix: float,
        homophily: float = 0.5,
        normalise: bool = False,
    ) -> None:
        super().__init__(
            normalise,
            features=features,
            hidden=hidden,
            classes=classes,
            basis=basis,
            order=order,
            mix=mix,
            homophily=homophily,
        )
        self.hidden, self.classifier = Affine(features, hidden), Affine(hidden, classes)
        self.filter = nn.Parameter(torch.empty(order + 1))

    def logits(self, x: Tensor, graph: Neighbours) -> Tensor:
        """The classifier of the filtered features."""
        h = self.hidden.weight.new_zeros(x.shape[0], self.config["hidden"])
        for some, part in _columns(x):
            signals = zip(self.filter, self._signals(part, graph), strict=True)
            filtered = torch.stack([w * signal for w, signal in signals]).sum(0)
            h = h + filtered.to(h.dtype) @ self.hidden.weight[some]
        return self.classifier(torch.relu(h + self.hidden.bias))

    def _signals(self, x: Tensor, graph: Neighbours) -> list[Tensor]:
        """H_0 .. H_K, [n, F] each."""
        basis, order, mix = (self.config[name] for name in ("basis", "order", "mix"))
        if basis == "chebyshev":
            return self._chebyshev(x, graph, order)
        if basis == "bernstein":
            return self._bernstein(x, graph, order)
        powers = [x]
        for _ in range(order):
            powers.append(graph.normalised(powers[-1]))
        if basis == "monomial":
            return powers
        rotated = self._rotated(x, graph, order)
        return [mix * p + (1.0 - mix) * u for p, u in zip(powers, rotated, strict=True)]

    @staticmethod
    def _chebyshev(x: Tensor, graph: Neighbours, order: int) -> list[Tensor]:
        """T_k(-A) X."""
        out = [x, -graph.normalised(x)]
        while len(out) <= order:
            out.append(-2.0 * graph.normalised(out[-1]) - out[-2])
        return out[: order + 1]

    @staticmethod
    def _bernstein(x: Tensor, graph: Neighbours, order: int) -> list[Tensor]:
        """binom(K, k) / 2^K (I + A)^(K-k) (I - A)^k X."""
        high = [x]
        for _ in range(order):
            high.append(high[-1] + graph.normalised(high[-1]))
        out = []
        for k in range(order + 1):
            h = high[order - k]
            for _ in range(k):
                h = h - graph.normalised(h)
            out.append(math.comb(order, k) / 2.0**order * h)
        return out

    def _rotated(self, x: Tensor, graph: Neighbours, order: int) -> list[Tensor]:
        """For each column, vectors of its length in its Krylov space, every two at the angle pi/2 (1 - homophily)."""
        c = math.cos(math.pi / 2.0 * (1.0 - self.config["homophily"]))
        length = torch.linalg.vector_norm(x, dim=0)
        krylov, out = [x / _or_one(length)], [x]
        total = krylov[0]
        for k in range(1, order + 1):
            v = graph.normalised(krylov[-1])
            for _ in range(2):
                along = [(v * one).sum(0) for one in krylov]
                for one, share in zip(krylov, along, strict=True):
                    v = v - one * share
            size = torch.linalg.vector_norm(v, dim=0)
            krylov.append(torch.where(size > TINY, v / size.clamp_min(TINY), 0.0))
            b = 1.0 + (k - 1) * c
            u = (c / b) * total + math.sqrt(max(0.0, 1.0 - k * c * c / b)) * krylov[-1]
            out.append(u * length)
            total = total + u
        return out


# -- FedIIH -------------------------------------------------------------------------------------------------------------


class Routing(Network):
    """A projection into K factors, neighbourhood routing (Ma et al., 2019) within each, and a classifier of all of them.

    With `both`, the classifier reads the projected factors beside the routed ones.
    """

    def __init__(
        self,
        features: int,
        factors: int,
        width: int,
        classes: int,
        layers: int,
        iterations: int,
        both: bool = False,
        normalise: bool = False,
    ) -> None:
        super().__init__(
            normalise,
            features=features,
            factors=factors,
            width=width,
            classes=classes,
            layers=layers,
            iterations=iterations,
            both=both,
        )
        self.projection = Affine(features, factors * width)
        self.classifier = Affine(factors * width * (2 if both else 1), classes)

    def logits(self, x: Tensor, graph: Neighbours) -> Tensor:
        """The classifier of the factors, side by side."""
        factors, width = self.config["factors"], self.config["width"]
        projected = F.leaky_relu(self.projection(x)).view(x.shape[0], factors, width)
        z = projected
        for _ in range(self.config["layers"]):
            z = F.leaky_relu(self._route(z, graph))
        if self.config["both"]:
            z = torch.cat([unit(projected), z], dim=2)
        return self.classifier(z.flatten(1))

    def _route(self, z: Tensor, graph: Neighbours) -> Tensor:
        """[n, K, d] -> [n, K, d], each aspect of each node of length one."""
        z = unit(z)
        c = z
        for _ in range(self.config["iterations"]):
            score = torch.stack([(c[graph.u, k] * z[graph.v, k]).sum(1) for k in range(z.shape[1])])
            p = torch.softmax(score, dim=0)
            near = [spread(graph.u, graph.v, p[k], z[:, k]) for k in range(z.shape[1])]
            c = unit(torch.stack(near, dim=1) + z)
        return c


# -- FedHERO ------------------------------------------------------------------------------------------------------------


class Learner(nn.Module):
    """A structure learner: from features and graph to a latent graph, pairs (u, v) with weights that sum to one at u.

    A pair's score is made of z_u and z_v, z a graph convolution of the features; each node keeps its `k` best, or, with
    `draws`, neighbours drawn with their scores as chances, k of them on average.
    """

    def __init__(self, kind: str, features: int, hidden: int, heads: int, k: int, draws: bool) -> None:
        super().__init__()
        self.kind, self.k = kind, k
        metric: dict[str, dict[str, tuple[int, ...]]] = {
            "heads": {"left": (heads, hidden), "right": (heads, hidden)},
            "attention": {"query": (hidden, hidden), "key": (hidden, hidden)},
            "gat": {"source": (hidden, 1), "target": (hidden, 1)},
            "glcn": {"scale": (hidden, 1)},
        }
        self.weight = nn.Parameter(torch.empty(features, hidden))
        self.bias = None if kind == "glcn" else nn.Parameter(torch.empty(hidden))
        for name, shape in metric.get(kind, {}).items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        if draws:  # the client's number, two words of 32 bits, which its random numbers are a hash of
            self.register_buffer("words", torch.empty(2, dtype=torch.int32))

    def forward(self, x: Tensor, graph: Neighbours) -> tuple[Tensor, Tensor, Tensor]:
        """u, v and weight of every latent pair, [E'] each."""
        z = graph.gcn(times(x, self.weight))
        z = z if self.bias is None else z + self.bias
        if self.kind == "gat":
            u, v = graph.with_self()
            score = (z @ self.get_parameter("source"))[u, 0] + (z @ self.get_parameter("target"))[v, 0]
            return u, v, softmax_by_node(u, F.leaky_relu(score, SLOPE), graph.nodes)
        left, right = self._factors(z)
        if "words" in dict(self.named_buffers()):
            u, v = self._drawn(left, right)
            return u, v, by_node(u, torch.ones_like(u, dtype=z.dtype), graph.nodes)
        u, v = self._best(left, right)
        if self.kind == "glcn":
            plus, minus = (left[u] - right[v]).abs().chunk(2, dim=1)
            return u, v, softmax_by_node(u, torch.relu((plus - minus).sum(1)), graph.nodes)
        score = (left[u] * right[v]).sum(1)
        if self.kind == "attention":
            return u, v, softmax_by_node(u, score, graph.nodes)
        positive = torch.sigmoid(score) if self.kind == "gaug" else torch.relu(score)
        return u, v, by_node(u, positive, graph.nodes)

    def _factors(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """What a pair's score is made of, [n, D] each."""
        if self.kind == "heads":
            left, right = (unit(z.unsqueeze(1) * self.get_parameter(side)).flatten(1) for side in ("left", "right"))
            return left, right
        if self.kind == "attention":
            return z @ self.get_parameter("query") / z.shape[1] ** 0.5, z @ self.get_parameter("key")
        if self.kind == "glcn":
            scale = self.get_parameter("scale").squeeze(1)
            z = torch.cat([z * torch.relu(scale), z * torch.relu(-scale)], dim=1)
        return (unit(z), unit(z)) if self.kind == "cosine" else (z, z)

    def _scores(self, left: Tensor, right: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Scores of all pairs, some rows at a time: (first row, [r, n])."""
        # Batches of one, and as many rows as fedquilt takes: scores that are equal to the last bit there are so here.
        left, right = left.unsqueeze(0), right.unsqueeze(0)
        step = max(1, CHUNK // max(1, right.shape[1]))
        for first in range(0, left.shape[1], step):
            some = left[:, first : first + step]
            if self.kind == "glcn":
                (a, b), (c, d) = some.chunk(2, dim=2), right.chunk(2, dim=2)
                yield first, (torch.cdist(a, c, p=1) - torch.cdist(b, d, p=1))[0]
            else:
                yield first, (some @ right.mT)[0]

    @torch.no_grad()
    def _best(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """The k best of every node, the first of equals."""
        n = len(left)
        most = min(self.k, n)
        found = [_largest(scores, most) for _, scores in self._scores(left, right)]
        u = torch.arange(n, device=left.device).repeat_interleave(most)
        return u, torch.cat(found).flatten() if found else u

    @torch.no_grad()
    def _drawn(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Each pair with a chance proportional to its score, where that is positive."""
        us, vs = [], []
        for first, scores in self._scores(left, right):
            chance = torch.relu(scores)
            chance = (chance * (self.k / chance.sum(1, keepdim=True).clamp_min(SMALL))).clamp_max(1.0)
            u, v = torch.nonzero(self._uniform(first, *scores.shape) < chance, as_tuple=True)
            us.append(u + first)
            vs.append(v)
        return torch.cat(us), torch.cat(vs)

    def _uniform(self, first: int, rows: int, columns: int) -> Tensor:
        """Numbers in [0, 1] that depend on the client, the row and the column only."""
        low, high = self.get_buffer("words")
        position = torch.arange(first, first + rows, device=low.device, dtype=torch.int32)
        x = (position * columns + low).unsqueeze(1) + torch.arange(columns, device=low.device, dtype=torch.int32)
        x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D ^ high
        x = (x ^ ((x >> 15) & 0x1FFFF)) * -2073254261
        return (x ^ ((x >> 16) & 0xFFFF)).float() * 2.0**-32 + 0.5


def _largest(scores: Tensor, k: int) -> Tensor:
    """The places of the k largest of each row, the first of equals: [r, n] -> [r, k].

    The bits of a float, the lower 31 flipped where it is negative, rise with it; the earlier place counts for more.
    """
    bits = (scores.float() + 0.0).contiguous().view(torch.int32)
    rising = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    n = scores.shape[1]
    key = (rising << 32) + torch.arange(n - 1, -1, -1, device=scores.device)
    return n - 1 - (key.topk(k, dim=1).values & 0xFFFFFFFF)


class Structure(Network):
    """Layers on the given graph and on a latent one that a structure learner builds, and a classifier of all layers.

    Z^l = relu(alpha A Z W_local + (1 - alpha) A~ Z W_global), twice; with one `channels`, both graphs go through W_global.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        classes: int,
        learner: str,
        learner_hidden: int,
        heads: int,
        k: int,
        alpha: float,
        channels: int = 2,
        draws: bool = False,
        normalise: bool = False,
    ) -> None:
        super().__init__(
            normalise,
            features=features,
            hidden=hidden,
            classes=classes,
            learner=learner,
            learner_hidden=learner_hidden,
            heads=heads,
            k=k,
            alpha=alpha,
            channels=channels,
            draws=draws,
        )
        self.projection = Affine(features, hidden)
        self.learner = Learner(learner, features, learner_hidden, heads, k, draws)
        self.global1, self.global2 = Affine(hidden, hidden), Affine(hidden, hidden)
        if channels == 2:
            self.local1, self.local2 = Affine(hidden, hidden), Affine(hidden, hidden)
        self.classifier = Affine(3 * hidden, classes, raw=(features, classes))

    def logits(self, x: Tensor, graph: Neighbours) -> Tensor:
        """The classifier of the features and of all layers."""
        alpha, two = self.config["alpha"], self.config["channels"] == 2
        u, v, weight = self.learner(x, graph)
        z = torch.relu(self.projection(x))
        layers = [z]
        for layer in ("1", "2"):
            latent = spread(u, v, weight, z)
            if self.config["learner"] == "gaug":
                latent = (1.0 - GIVEN) * latent + GIVEN * graph.mean(z)
            shared = self.get_submodule(f"global{layer}")
            if two:
                own = self.get_submodule(f"local{layer}")
                z = alpha * (graph.gcn(z @ own.get_parameter("weight")) + own.get_parameter("bias")) + (
                    1.0 - alpha
                ) * shared(latent)
            else:
                z = shared(alpha * graph.gcn(z) + (1.0 - alpha) * latent)
            z = torch.relu(z)
            layers.append(z)
        return self.classifier(torch.cat(layers, dim=1)) + times(x, self.classifier.get_parameter("raw"))
