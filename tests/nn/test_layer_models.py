"""Each network of graph layers over a cohort equals PyTorch Geometric's layers composed, client by client."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import GCN2Conv

from fedquilt.cohort.client import Client
from fedquilt.cohort.draws import client_keys
from fedquilt.graphs.graph import Graph
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.models import Model, common_start
from fedquilt.tasks.node_classification import class_count
from support import pyg_reference as reference
from support.clients import (
    LAYOUTS,
    assert_near,
    client_lists,
    edge_index,
    hard_clients,
    lay,
    random_client,
    relative_weights,
    with_training_nodes,
    with_weights,
)
from support.pyg_reference import Weights

KINDS = ["gcn", "sage", "gat", "mlp", "gin"]
# Two layers of attention in float32: see TOLERANCE in test_layers. A layer that is normalised divides by what nearly cancels.
TOLERANCE = {"gat": 3e-4, "gin": 3e-4}
seeds = st.integers(0, 2**31)


@pytest.mark.parametrize(("rows", "features"), LAYOUTS)
@pytest.mark.parametrize("hidden", [8, 5])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4)
@given(clients=client_lists(most=4), seed=seeds, rate=st.sampled_from([None, 0.0, 0.5, 0.37]))
def test_a_model_equals_pyg_layers(
    kind: str, hidden: int, rows: str, features: str, clients: list[Client], seed: int, rate: float | None
) -> None:
    cohort = lay(clients, rows, features)
    model = Model.kinds[kind](cohort.features, hidden, class_count(cohort))
    weights = reference.leaves(reference.random_weights(model.shapes(), len(clients), seed))
    dropout = None if rate is None else Dropout(rate, client_keys(seed, cohort), 3)
    out = model(cohort, weights, dropout)
    pull, pulls = reference.random_rows(cohort, class_count(cohort), seed + 1, fill=0.0)
    (out.logits * pull).sum().backward()
    keeps = [dropout.keep(cohort, hidden, layer) for layer in (0, 1)] if dropout else None
    for m, client in enumerate(clients):
        own = reference.of_client(weights, m)
        mine = tuple(cohort.parts_of(keep)[m] for keep in keeps) if keeps else None
        logits, embedding = reference.model(kind, client, own, mine, dropout.scale if dropout else 1.0)
        (logits * pulls[m]).sum().backward()
        tolerance = TOLERANCE.get(kind, 2e-5)
        assert_near(cohort.parts_of(out.logits.detach())[m], logits.detach(), tolerance)
        assert_near(cohort.parts_of(out.embedding.detach())[m], embedding.detach(), tolerance)
        for name, w in weights.items():
            assert_near(w.grad[m], own[name].grad, tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_stacked(kind: str) -> None:
    """With the first two layers of three as they are and the third one applied by hand, the output is the same."""
    cohort = lay(with_training_nodes((5, 3)), "compact")
    three, two = (Model.kinds[kind](cohort.features, 8, class_count(cohort), layers) for layers in (3, 2))
    weights = reference.random_weights(three.shapes(), 2, 0)
    inner = {name: w for name, w in weights.items() if not name.startswith("conv3.")}
    third = {name.removeprefix("conv3."): w for name, w in weights.items() if name.startswith("conv3.")}
    embedding = three.second(cohort, torch.relu(two(cohort, inner).embedding), third)
    assert_near(three(cohort, weights).embedding, embedding, 1e-4)
    one = Model.kinds[kind](cohort.features, 8, class_count(cohort), 1)
    assert list(one.shapes()) == [name for name in two.shapes() if not name.startswith("conv2.")]


@pytest.mark.parametrize(("hidden", "heads"), [(128, 4), (4, 4), (6, 1), (5, 1)])
def test_attention_heads_divide_the_width(hidden: int, heads: int) -> None:
    shapes = Model.kinds["gat"](6, hidden, 3).shapes()
    assert shapes["conv1.source"] == shapes["conv2.target"] == (heads, hidden // heads)


def gcnii(client: Client, w: Weights, layers: int, keeps: list[Tensor]) -> tuple[Tensor, Tensor]:
    """PyTorch Geometric's layers composed as in the paper, with dropout after each."""
    strength = torch.from_numpy(relative_weights(client)).repeat(2)
    z = reference.features(client) @ w["conv1.weight"] + w["conv1.bias"]
    first = h = torch.relu(z) * keeps[0]
    for layer in range(1, layers + 1):
        conv = GCN2Conv(w["conv1.weight"].shape[1], alpha=0.1, theta=0.5, layer=layer)
        z = reference.call(conv, {"weight1": w[f"conv{layer + 1}.weight"]}, h, first, edge_index(client), strength)
        h = torch.relu(z) * keeps[layer]
    return h @ w["classifier.weight"] + w["classifier.bias"], z


@pytest.mark.parametrize(("rows", "features"), LAYOUTS)
@example(clients=with_weights(hard_clients()), seed=0, layers=2, rate=0.5)
@settings(max_examples=8, deadline=None)
@given(
    clients=st.one_of(client_lists(most=4), client_lists(most=4).map(with_weights)),
    seed=seeds,
    layers=st.integers(1, 5),
    rate=st.sampled_from([None, 0.0, 0.5]),
)
def test_gcnii_equals_pyg_layers(
    rows: str, features: str, clients: list[Client], seed: int, layers: int, rate: float | None
) -> None:
    cohort = lay(clients, rows, features)
    model = Model.kinds["gcnii"](cohort.features, 5, class_count(cohort), layers)
    weights = reference.leaves(reference.random_weights(model.shapes(), len(clients), seed))
    dropout = None if rate is None else Dropout(rate, client_keys(seed, cohort), 3)
    out = model(cohort, weights, dropout)
    pull, pulls = reference.random_rows(cohort, class_count(cohort), seed + 1, fill=0.0)
    (out.logits * pull).sum().backward()
    ones = torch.ones(cohort.rows, 5)
    keeps = [dropout.mask(cohort, 5, layer) if dropout else ones for layer in range(layers + 1)]
    for m, client in enumerate(clients):
        own = reference.of_client(weights, m)
        logits, embedding = gcnii(client, own, layers, [cohort.parts_of(keep)[m].double() for keep in keeps])
        (logits * pulls[m]).sum().backward()
        assert_near(cohort.parts_of(out.logits.detach())[m], logits.detach(), 3e-5)
        assert_near(cohort.parts_of(out.embedding.detach())[m], embedding.detach(), 3e-5)
        for name, w in weights.items():
            assert_near(w.grad[m], own[name].grad, 5e-5)


def test_gcnii_keeps_what_tells_nodes_apart_over_many_layers() -> None:
    """What it is for: after 32 layers nodes still differ, where those of a GCN are all alike."""
    cohort = lay([random_client(np.random.default_rng(0), 0, 30, filled=1.0)])
    spread = {}
    for kind in ("gcnii", "gcn"):
        model = Model.kinds[kind](cohort.features, 16, 3, 32)
        embedding = model(cohort, common_start(model.shapes(), 0, 1, torch.device("cpu"))).embedding
        directions = torch.nn.functional.normalize(embedding, dim=1)
        spread[kind] = float((directions - directions.mean(0)).norm(dim=1).mean())
    assert spread["gcnii"] > 0.1
    assert spread["gcn"] < 0.01


def test_gin_sees_how_many_neighbours_there_are() -> None:
    """Nodes with equal features, on a path: the ends differ from the middle in GIN, and not where means are taken."""
    edges = np.stack([np.arange(6), np.arange(1, 7)])
    graph = Graph("path", edges, np.ones((7, 2), np.float32), np.zeros(7, np.int64), 2)
    cohort = lay([Client(0, graph, np.zeros(7, np.int8))])
    for kind, apart in (("gin", True), ("sage", False)):
        model = Model.kinds[kind](2, 8, 2, 1)
        embedding = model(cohort, reference.random_weights(model.shapes(), 1, 0)).embedding
        assert_near(embedding[0], embedding[6])
        assert (float((embedding[0] - embedding[3]).abs().max()) > 1e-2) == apart


def test_gin_without_running_statistics_gives_a_node_the_same_whoever_else_is_there() -> None:
    one, two = with_training_nodes((5, 3))
    model = Model.kinds["gin"](one.graph.features, 8, 3)
    weights = reference.random_weights(model.shapes(), 2, 0)
    both = lay([one, two], "compact")
    alone = lay([one], "compact")
    own = {name: w[:1] for name, w in weights.items()}
    assert_near(model(both, weights).logits[: one.graph.nodes], model(alone, own).logits)
