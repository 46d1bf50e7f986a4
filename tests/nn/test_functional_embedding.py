"""Functional embeddings against two layers of PyTorch Geometric on the same random graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.cohort.client import Client
from fedquilt.common.random_streams import numpy_stream
from fedquilt.graphs.graph import Graph
from fedquilt.nn.functional_embedding import (
    BLOCK_NODES,
    Copies,
    RandomGraph,
    embedding_on_copies,
    functional_embedding,
    random_graph,
)
from fedquilt.nn.hops import hops_of
from fedquilt.nn.models import Gcn, Model
from support import pyg_reference as reference
from support.clients import assert_near, dense_features, lay, random_client

CPU = torch.device("cpu")
seeds = st.integers(0, 2**31)


def expected_embedding(client: Client, weights: dict[str, torch.Tensor], m: int) -> torch.Tensor:
    """Two GCNConv layers in full, then the mean over nodes before the second ReLU."""
    own = {name: w[m].double() for name, w in weights.items()}
    return reference.model("gcn", client, own)[1].mean(0)


@settings(max_examples=15)
@given(
    seed=seeds,
    nodes=st.integers(1, 30),
    edges=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    clients=st.integers(1, 4),
)
def test_the_collapsed_forward_equals_two_gcn_layers(seed: int, nodes: int, edges: float, clients: int) -> None:
    client = random_client(np.random.default_rng(seed), 0, nodes, 6, edges=edges)
    graph = RandomGraph(
        torch.from_numpy(np.asarray(client.gcn @ dense_features(client))),
        torch.from_numpy(np.asarray(client.gcn.mean(axis=0), dtype=np.float32).ravel()),
    )
    weights = reference.random_weights(Gcn(6, 5, 3).shapes(), clients, seed)
    found = functional_embedding(graph, weights)
    assert_near(found, torch.stack([expected_embedding(client, weights, m) for m in range(clients)]))


def drawn_again(kind: str, seed: int, features: int) -> Client:
    """The same random graph from the same draws: pairs in order, then the features."""
    stream = numpy_stream(seed, "random graph")
    nodes = 1 if kind == "one" else 500
    pairs = [(u, v) for u in range(nodes) for v in range(u + 1, nodes)]
    p = np.array([0.1 if u // 100 == v // 100 else 0.01 for u, v in pairs])
    if kind == "er":
        p = np.full(len(p), p.mean())
    chosen = stream.random(len(pairs)) < p
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)[chosen].T
    x = stream.standard_normal((nodes, features)).astype(np.float32)
    return Client(0, Graph("again", edges, x, np.zeros(nodes, np.int64), 1), np.zeros(nodes, np.int8))


@pytest.mark.parametrize("kind", ["sbm", "er", "one"])
def test_the_random_graph_is_what_it_says(kind: str) -> None:
    client = drawn_again(kind, 5, 7)
    weights = reference.random_weights(Gcn(7, 6, 3).shapes(), 3, 1)
    found = functional_embedding(random_graph(kind, 5, 7, CPU), weights)
    assert_near(found, torch.stack([expected_embedding(client, weights, m) for m in range(3)]))


def test_block_model_has_its_blocks() -> None:
    client = drawn_again("sbm", 0, 1)
    u, v = client.graph.edges
    inside = (u // BLOCK_NODES == v // BLOCK_NODES).sum()
    across = len(u) - inside
    for seen, pairs, p in ((inside, 5 * 4950, 0.1), (across, 10 * 10_000, 0.01)):
        assert abs(seen - pairs * p) < 5 * np.sqrt(pairs * p * (1 - p))


def test_random_graphs_depend_on_seed_and_kind_alone() -> None:
    one = random_graph("sbm", 1, 4, CPU)
    random_graph.cache_clear()
    again = random_graph("sbm", 1, 4, CPU)
    assert torch.equal(one.smoothed, again.smoothed)
    assert torch.equal(one.averaged, again.averaged)
    assert not torch.equal(one.smoothed, random_graph("sbm", 2, 4, CPU).smoothed)
    assert not torch.equal(one.averaged, random_graph("er", 1, 4, CPU).averaged)


@pytest.mark.parametrize("kind", sorted(Model.kinds))
@pytest.mark.parametrize("nodes", [1, 20])
def test_the_embedding_of_any_model_is_that_of_each_client_alone(kind: str, nodes: int) -> None:
    client = random_client(np.random.default_rng(0), 0, nodes, 6)
    model = Model.kinds[kind](6, 8, 3, 3)
    weights = reference.random_weights(model.shapes(), 4, 0)
    found = embedding_on_copies(Copies(client, 4, CPU), model, weights)
    for m in range(4):
        own = {name: w[m : m + 1] for name, w in weights.items()}
        assert_near(found[m], model(lay([client]), own).embedding.mean(0), 3e-4)


def test_copies_of_a_graph_hold_its_features_once() -> None:
    copies = Copies(random_client(np.random.default_rng(0), 0, 20, 300), 6, CPU)
    assert copies.x.dense is not None
    assert copies.x.dense.shape == (20, 300)
    assert all(of.dense is copies.x.dense for of in (copies.smoothed, copies.mean_x, copies.sum_x))
    assert not hops_of(copies, 2).stored
    assert copies.rows == 6 * 20
