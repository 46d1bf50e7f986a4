"""Random clients for the tests of everything that computes over a cohort.

`client_lists` is a Hypothesis strategy; `random_client` makes one client from a generator. `lay` builds a
cohort with a forced row layout (padded or compact) and forced feature products (dense or sparse), so that
tests cover all of them whatever `Cohort` would choose for the clients at hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fedquilt.cohort import features as features_module
from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.graphs.arrays import Features
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import NONE

PADDING = {"padded": 1e9, "compact": -1.0}
FEATURES = {"sparse": 2.0, "dense": -1.0}
# Every way a cohort may lay out its rows and multiply its features.
LAYOUTS = [(rows, features) for rows in PADDING for features in FEATURES]


def random_edges(rng: np.random.Generator, nodes: int, share: float) -> np.ndarray:
    """[2, E]: each pair of nodes is an edge with probability `share`; u < v, sorted."""
    u, v = np.triu_indices(nodes, k=1)
    chosen = rng.random(len(u)) < share
    return np.stack([u[chosen], v[chosen]]).astype(np.int64)


def random_features(rng: np.random.Generator, nodes: int, features: int, filled: float, sparse: bool) -> Features:
    """[nodes, features] float32 with about a share `filled` of non-zeros, as an array or as scipy CSR."""
    x = rng.standard_normal((nodes, features)) * (rng.random((nodes, features)) < filled)
    x = x.astype(np.float32)
    return sp.csr_matrix(x) if sparse else x


def random_client(
    rng: np.random.Generator,
    number: int = 0,
    nodes: int = 10,
    features: int = 6,
    classes: int = 3,
    edges: float = 0.3,
    filled: float = 0.5,
    sparse: bool = False,
) -> Client:
    """A client with `nodes` nodes; some have no label (where there are over three), some are in no part."""
    y = rng.integers(-1, classes, nodes) if nodes > 3 else rng.integers(0, classes, nodes)
    graph = Graph(
        name=f"random/{number}",
        edges=random_edges(rng, nodes, edges),
        x=random_features(rng, nodes, features, filled, sparse),
        y=y.astype(np.int64),
        classes=classes,
    )
    split = rng.integers(-1, 3, nodes).astype(np.int8)
    return Client(number, graph, np.where(y >= 0, split, NONE).astype(np.int8))


@st.composite
def client_lists(
    draw: st.DrawFn, most: int = 5, features: int | None = None, classes: int = 3, train: bool = False
) -> list[Client]:
    """Lists of 1..`most` clients: single nodes, isolated nodes, no edges at all, complete graphs; ragged or
    equal sizes; dense and CSR features of any density, mixed within one list; labels with -1; any split.

    With `train=True` each client has at least one labelled training node.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    width = draw(st.integers(1, 7)) if features is None else features
    size = st.integers(1, 16)
    count = draw(st.integers(1, most))
    equal = draw(st.booleans())
    sizes = [draw(size)] * count if equal else [draw(size) for _ in range(count)]
    # Clients keep their numbers when a cohort is made of some of them, so numbers need not be 0..M-1.
    numbers = sorted(draw(st.lists(st.integers(0, 999), min_size=count, max_size=count, unique=True)))
    clients = []
    for number, nodes in zip(numbers, sizes, strict=True):
        client = random_client(
            rng,
            number,
            nodes,
            width,
            classes,
            edges=draw(st.sampled_from([0.0, 0.1, 0.4, 1.0])),
            filled=draw(st.sampled_from([0.0, 0.1, 0.6, 1.0])),
            sparse=draw(st.booleans()),
        )
        if train:
            one = rng.integers(nodes)
            client.graph.y[one] = rng.integers(classes)
            client.split[one] = 0
        clients.append(client)
    return clients


def equal_clients(count: int, nodes: int, features: int = 1) -> list[Client]:
    """`count` edgeless clients of `nodes` nodes each: rows to draw dropout masks for, and nothing else."""
    x, y = np.ones((nodes, features), dtype=np.float32), np.zeros(nodes, dtype=np.int64)
    empty = np.zeros((2, 0), dtype=np.int64)
    return [Client(m, Graph(f"rows/{m}", empty, x, y, 1), np.zeros(nodes, dtype=np.int8)) for m in range(count)]


def with_training_nodes(counts: Sequence[int]) -> list[Client]:
    """Clients of 15 to 20 nodes with exactly so many labelled training nodes each, in no particular place."""
    rng = np.random.default_rng(len(counts))
    clients = []
    for m, count in enumerate(counts):
        client = random_client(rng, m, int(rng.integers(15, 21)))
        client.split[:] = np.where(client.split == 0, 1, client.split)
        chosen = rng.choice(client.graph.nodes, count, replace=False)
        client.split[chosen] = 0
        client.graph.y[chosen] = rng.integers(0, client.graph.classes, count)
        clients.append(client)
    return clients


def lay(clients: Sequence[Client], rows: str = "padded", features: str | None = None) -> Cohort:
    """A cohort with its rows "padded" or "compact" and, if asked, "sparse" or "dense" feature products."""
    cohort = Cohort(clients, padding=PADDING[rows])
    assert (cohort.length is not None) == (rows == "padded")
    if features is not None:
        with mock.patch.object(features_module, "SPARSE_LIMIT", FEATURES[features]):
            matrices = [cohort.x, cohort.smoothed, cohort.mean_x, cohort.sum_x]
        assert all((matrix.sparse is not None) == (features == "sparse") for matrix in matrices)
    return cohort


def with_weights(clients: Sequence[Client], low: float = 0.1, high: float = 10.0, seed: int = 0) -> list[Client]:
    """The same clients with edge weights whose logarithms are equally likely between those of `low` and `high`."""
    rng = np.random.default_rng(seed)

    def one(client: Client) -> Client:
        count = client.graph.edges.shape[1]
        weights = np.exp(rng.uniform(math.log(low), math.log(high), count)).astype(np.float32)
        return replace(client, graph=replace(client.graph, edge_weights=weights))

    return [one(client) for client in clients]


def relative_weights(client: Client) -> np.ndarray:
    """[E] float64: the client's edge weights over their mean, by hand; ones where it has none."""
    raw = client.graph.edge_weights
    if raw is None or not raw.size:
        return np.ones(client.graph.edges.shape[1])
    total = math.fsum(raw.tolist())
    return np.array([weight * len(raw) / total for weight in raw.tolist()])


def dense_features(client: Client) -> np.ndarray:
    """A client's features as an array, however they are stored."""
    x = client.graph.x
    return x.toarray() if sp.issparse(x) else x


def dense_adjacency(client: Client) -> np.ndarray:
    """[n, n] float64, by a loop over the edges; with their relative weights where they have weights."""
    a = np.zeros((client.graph.nodes, client.graph.nodes))
    for (u, v), weight in zip(client.graph.edges.T, relative_weights(client), strict=True):
        a[u, v] = a[v, u] = weight
    return a


def edge_index(client: Client) -> Tensor:
    """[2, 2E]: both directions of each edge, as PyTorch Geometric wants them."""
    edges = client.graph.edges
    return torch.from_numpy(np.concatenate([edges, edges[::-1]], axis=1))


def assert_near(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Equal shapes, and equal entries up to `tolerance` of the largest expected one (or of 1, if larger)."""
    assert actual.shape == expected.shape
    if expected.numel():
        scale = max(1.0, float(expected.abs().max()))
        worst = float((actual.double() - expected.double()).abs().max())
        assert worst <= tolerance * scale, f"differs by {worst:.3g} where the largest entry is {scale:.3g}"


def numbers(seed: int, *shape: int) -> Tensor:
    """Standard normal numbers that depend on the seed only."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def doubles(seed: int, *shape: int) -> Tensor:
    """The same in double precision."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Largest(TorchDispatchMode):
    """The most numbers of any dense tensor that is made inside the block."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(one, Tensor) and one.layout == torch.strided:
                self.numbers = max(self.numbers, one.numel())
        return out


def hard_clients() -> list[Client]:
    """One node; no edge; a clique with sparse features; no features; isolated nodes beside others; sizes far apart."""
    rng = np.random.default_rng(5)
    return [
        random_client(rng, 0, 1),
        random_client(rng, 1, 12, edges=0.0),
        random_client(rng, 2, 3, edges=1.0, filled=0.3, sparse=True),
        random_client(rng, 3, 7, filled=0.0),
        random_client(rng, 4, 16, edges=0.12),
    ]


def dense_operator(client: Client) -> np.ndarray:
    """D^-1/2 A D^-1/2 without self-loops, [n, n] float64."""
    a = dense_adjacency(client)
    scale = np.array([1.0 / math.sqrt(d) if d else 0.0 for d in a.sum(1)])
    return scale[:, None] * a * scale[None, :]


def gcn_operator(client: Client) -> np.ndarray:
    a = dense_adjacency(client) + np.eye(client.graph.nodes)
    degree = a.sum(1)
    return a / np.sqrt(np.outer(degree, degree))


def mean_operator(client: Client) -> np.ndarray:
    a = dense_adjacency(client)
    total = a.sum(1, keepdims=True)
    return a / np.where(total > 0, total, 1.0)
