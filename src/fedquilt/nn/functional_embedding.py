"""FED-PUB's functional embedding: the mean over nodes of a model's embedding on a random graph common to all clients.

Of a two-layer GCN, the mean over nodes of A h is the product of h with the row (1/n) 1^T A, so the second propagation is one
product with a vector. Other models are computed on a cohort in which everyone has that graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.features import FeatureMatrix
from fedquilt.cohort.sparse import SparseMatrix
from fedquilt.common.random_streams import numpy_stream
from fedquilt.graphs.graph import Graph
from fedquilt.nn.layers import Weights
from fedquilt.nn.model import Network

BLOCKS, BLOCK_NODES, P_INSIDE, P_ACROSS = 5, 100, 0.1, 0.01


@dataclass(frozen=True, eq=False)
class RandomGraph:
    """A random graph in the form in which the node mean of a GCN's second layer is cheap.

    Attributes:
        smoothed: [n, F], the smoothed features A X.
        averaged: [n], the row (1/n) 1^T A; the mean over nodes of A h is ``averaged @ h``.
    """

    smoothed: Tensor
    averaged: Tensor


@lru_cache(maxsize=4)
def random_client(kind: str, seed: int, features: int) -> Client:
    """Draw the random graph of a seed, with features from N(0, 1).

    Kinds: "sbm": 5 blocks of 100 nodes, p = 0.1 inside and 0.01 across. "er": 500 nodes with the same mean degree. "one": a
    single node.
    """
    stream = numpy_stream(seed, "random graph")
    n = 1 if kind == "one" else BLOCKS * BLOCK_NODES
    u, v = np.triu_indices(n, k=1)
    inside = (u // BLOCK_NODES) == (v // BLOCK_NODES)
    p = np.where(inside, P_INSIDE, P_ACROSS)
    if kind == "er":
        p = np.full_like(p, p.mean())
    chosen = stream.random(len(u)) < p
    x = stream.standard_normal((n, features)).astype(np.float32)
    graph = Graph("random", np.stack([u[chosen], v[chosen]]), x, np.zeros(n, dtype=np.int64), 1)
    return Client(0, graph, np.zeros(n, dtype=np.int8))


@lru_cache(maxsize=4)
def random_graph(kind: str, seed: int, features: int, device: torch.device) -> RandomGraph:
    """The random graph of `random_client` in the form that two GCN layers need."""
    client = random_client(kind, seed, features)
    averaged = np.asarray(sp.csr_matrix(client.gcn).mean(axis=0)).ravel()
    return RandomGraph(
        torch.from_numpy(np.asarray(client.gcn @ client.graph.x)).to(device),
        torch.from_numpy(averaged.astype(np.float32)).to(device),
    )


def functional_embedding(graph: RandomGraph, weights: Weights) -> Tensor:
    """Compute the mean over nodes of A relu(A X W1 + b1) W2 + b2 for all clients: [M, H]."""
    first, bias = weights["conv1.weight"], weights["conv1.bias"]
    if first.is_cuda:
        hidden = graph.averaged @ torch.relu_(torch.matmul(graph.smoothed, first) + bias.unsqueeze(1))
        return torch.bmm(hidden.unsqueeze(1), weights["conv2.weight"]).squeeze(1) + weights["conv2.bias"]
    hidden = torch.stack(
        [graph.averaged @ torch.relu_(torch.addmm(b, graph.smoothed, w)) for w, b in zip(first, bias, strict=True)]
    )
    return torch.bmm(hidden.unsqueeze(1), weights["conv2.weight"]).squeeze(1) + weights["conv2.bias"]


class Copies(Cohort):
    """A cohort in which every client has the same graph; its features are stored once, not M times."""

    def __init__(self, client: Client, clients: int, device: torch.device) -> None:
        super().__init__([client] * clients, device)
        self.stores_features = False
        self._features = torch.from_numpy(np.asarray(client.graph.x)).to(device)

    @cached_property
    def x(self) -> FeatureMatrix:
        """The features."""
        return _SharedFeatures(self, self._features, None)

    @cached_property
    def smoothed(self) -> FeatureMatrix:
        """A X, the products of which with weights are propagated."""
        return _SharedFeatures(self, self._features, self.gcn)

    @cached_property
    def mean_x(self) -> FeatureMatrix:
        """(D^-1 A) X in the same way."""
        return _SharedFeatures(self, self._features, self.mean)

    @cached_property
    def sum_x(self) -> FeatureMatrix:
        """(A + I) X in the same way."""
        return _SharedFeatures(self, self._features, self.sums)


class _SharedFeatures(FeatureMatrix):
    """Features [n, F] that all clients share, times each client's weights, then propagated: P (X W_m)."""

    def __init__(self, cohort: Cohort, x: Tensor, operator: SparseMatrix | None) -> None:
        self.cohort, self.sparse, self.dense, self.operator = cohort, None, x, operator

    def __matmul__(self, weight: Tensor) -> Tensor:
        """[M, F, H] -> [M n, H]."""
        assert self.dense is not None
        product = torch.matmul(self.dense, weight).flatten(0, 1)
        return product if self.operator is None else self.operator @ product


def embedding_on_copies(copies: Copies, model: Network, weights: Weights) -> Tensor:
    """The mean over the nodes of a graph of any model's embedding, for all clients: [M, H]."""
    return copies.node_mean(model(copies, weights).embedding)
