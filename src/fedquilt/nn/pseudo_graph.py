"""A made-up graph on which several models are evaluated at once, and the generator that makes its nodes (FedTAD).

`PseudoGraph` stands for a cohort of M clients that all have the same graph, so that networks (`fedquilt.nn.models`) compute
the outputs of M models on it with batched products. Its features have a gradient. All shapes are fixed and nothing is read on
the host, so that it can be computed within a CUDA graph.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.features import FeatureMatrix
from fedquilt.cohort.memo import Memo
from fedquilt.cohort.rows import Rows
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Shapes

WIDTHS = (64, 128, 256)  # of the generator's hidden layers
SAME = ("x", "smoothed", "mean_x", "sum_x", "gcn", "mean", "sums")  # of all models on a pseudo graph
TINY = 1e-12  # below a root whose gradient at zero is not finite


class Propagation:
    """A dense operator P [Q, Q] that acts on each model's rows: [M Q, H] -> [M Q, H]."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix

    def __matmul__(self, dense: Tensor) -> Tensor:
        """Compute P h_m for every model m."""
        return (self.matrix @ dense.view(-1, len(self.matrix), dense.shape[1])).view(dense.shape)


class PseudoFeatures(FeatureMatrix):
    """Features X [Q, F] that all models share."""

    def __init__(self, x: Tensor) -> None:
        self.features = x

    def __matmul__(self, weight: Tensor) -> Tensor:
        """Compute X W_m for every model: weight [M, F, H] -> [M Q, H]."""
        return (self.features @ weight).flatten(0, 1)


class PseudoNodes:
    """The nodes of a pseudo graph and their links, whatever the models that read them.

    Attributes:
        x: the features, [Q, F].
        adjacency: [Q, Q] of ones and zeros, symmetric, without self-loops.
    """

    def __init__(self, x: Tensor, adjacency: Tensor) -> None:
        self.x, self.adjacency = PseudoFeatures(x), adjacency

    def detached(self) -> PseudoNodes:
        """The same without gradients."""
        nodes = PseudoNodes(self.x.features.detach(), self.adjacency)
        if "smoothed" in self.__dict__:
            nodes.smoothed = PseudoFeatures(self.smoothed.features.detach())
        return nodes

    @cached_property
    def looped(self) -> Tensor:
        """A + I."""
        return self.adjacency + torch.eye(len(self.adjacency), device=self.adjacency.device)

    @cached_property
    def gcn(self) -> Propagation:
        """D^-1/2 (A + I) D^-1/2."""
        scale = self.looped.sum(1).rsqrt()
        return Propagation(scale.unsqueeze(1) * self.looped * scale)

    @cached_property
    def mean(self) -> Propagation:
        """D^-1 A."""
        return Propagation(self.adjacency / self.adjacency.sum(1, keepdim=True).clamp_min(1.0))

    @cached_property
    def sums(self) -> Propagation:
        """A + I."""
        return Propagation(self.looped)

    @cached_property
    def sum_x(self) -> PseudoFeatures:
        """(A + I) X."""
        return PseudoFeatures(self.looped @ self.x.features)

    @cached_property
    def smoothed(self) -> PseudoFeatures:
        """D^-1/2 (A + I) D^-1/2 X."""
        return PseudoFeatures(self.gcn.matrix @ self.x.features)

    @cached_property
    def mean_x(self) -> PseudoFeatures:
        """D^-1 A X."""
        return PseudoFeatures(self.mean.matrix @ self.x.features)


class PseudoGraph(Rows, Memo):
    """The Q nodes for each of M models, as far as networks ask for a cohort.

    Attributes:
        pseudo: the nodes, of which every model has the same.
        features: F, the number of features.
        stores_features: features change, so that what is computed from them is not stored.
    """

    stores_features = False

    def __init__(self, layout: Rows, nodes: PseudoNodes) -> None:
        """`layout` has the Q rows of each of M models."""
        self.__dict__.update(layout.__dict__)
        self.pseudo, self.features = nodes, nodes.x.features.shape[1]

    def __getattr__(self, name: str) -> Any:
        """What is the same for all models."""
        if name in SAME:
            return getattr(self.pseudo, name)
        raise AttributeError(name)

    @cached_property
    def edges(self) -> Tensor:
        """[2, M Q Q]: all pairs of nodes of each model, sorted by target; those that are no edges weigh nothing."""
        one = torch.arange(len(self.pseudo.adjacency), device=self.device)
        own = torch.cartesian_prod(one, one).T.flip(0)
        first = torch.arange(self.clients, device=self.device) * len(one)
        return (own.unsqueeze(1) + first.view(1, -1, 1)).flatten(1)

    @cached_property
    def edge_weights(self) -> Tensor:
        """[M Q Q]: one for an edge and a self-loop, zero for other pairs."""
        return self.pseudo.looped.flatten().repeat(self.clients)


@torch.no_grad()
def nearest(x: Tensor, k: int) -> Tensor:
    """Join each node with the k others that are most alike (cosine): [Q, F] -> [Q, Q], symmetric ones and zeros."""
    unit = F.normalize(x, dim=1)
    alike = (unit @ unit.T).fill_diagonal_(-torch.inf)
    joined = torch.zeros_like(alike).scatter_(1, alike.topk(k, dim=1).indices, 1.0)
    return torch.maximum(joined, joined.T)


def generator_shapes(noise: int, classes: int, features: int) -> Shapes:
    """A vector for each class, dense layers from it and the noise, and one to the features."""
    widths = (noise + classes, *WIDTHS, features)
    shapes: Shapes = {"class": (classes, classes)}
    for layer, (inside, outside) in enumerate(pairwise(widths), start=1):
        shapes |= {f"layer{layer}.weight": (inside, outside), f"layer{layer}.bias": (outside,)}
    return shapes


def generate(w: Weights, noise: Tensor, labels: Tensor) -> Tensor:
    """Features of nodes of given classes, tanh between layers: noise [Q, z], labels [Q, C] one-hot -> [Q, F]."""
    h = torch.cat([labels @ w["class"], noise], dim=1)
    last = len(WIDTHS) + 1
    for layer in range(1, last):
        h = torch.tanh(h @ w[f"layer{layer}.weight"] + w[f"layer{layer}.bias"])
    return h @ w[f"layer{last}.weight"] + w[f"layer{last}.bias"]


def sameness(noise: Tensor, x: Tensor) -> Tensor:
    """exp(-mean over pairs of noise distance times feature distance): near one where different noise gives the same nodes.

    Distances are the mean square of differences of noise [Q, z], and the root mean square of those of features [Q, F].
    """
    apart = mean_squares(noise)
    return torch.exp(-(apart * (mean_squares(x) + TINY).sqrt()).mean())


def mean_squares(x: Tensor) -> Tensor:
    """The mean over columns of the squared differences of all pairs of rows: [Q, F] -> [Q, Q]."""
    squares = x.square().sum(1)
    return (squares.unsqueeze(1) + squares - 2.0 * (x @ x.T)).clamp_min(0.0) / x.shape[1]
