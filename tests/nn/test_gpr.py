"""GPR-GNN against its formula in NumPy, client by client, and against APPNP, which it is at the start."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.linalg import matrix_power
from torch import Tensor
from torch_geometric.nn import APPNP

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import client_keys
from fedquilt.graphs.graph import Graph
from fedquilt.nn import gpr
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.gpr import GprNet, walk_weights
from fedquilt.nn.models import Appnp, common_start, matrices
from fedquilt.tasks.node_classification import class_count
from support import pyg_reference as reference
from support.clients import (
    LAYOUTS,
    PADDING,
    Largest,
    assert_near,
    client_lists,
    dense_features,
    edge_index,
    gcn_operator,
    hard_clients,
    lay,
    random_client,
    relative_weights,
    with_training_nodes,
    with_weights,
)

ORDERS = [1, 2, 4]
HIDDEN = 7
STRENGTHS = st.sampled_from([0.0, 2.0])
seeds = st.integers(0, 2**31)
any_clients = st.one_of(client_lists(most=4), client_lists(most=4).map(with_weights))
Arrays = dict[str, np.ndarray]


def make(cohort: Cohort, order: int = 4, dropout: float | None = None, attention: float = 0.0) -> GprNet:
    return GprNet(cohort.features, HIDDEN, class_count(cohort), order, dropout, attention)


def attended(p: np.ndarray, z: np.ndarray, attention: float) -> np.ndarray:
    """Q [n, n] of P and class scores z [n, C]."""
    centred = z - z.mean(1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    cosines = (centred / np.maximum(length, 1e-12)) @ (centred / np.maximum(length, 1e-12)).T
    q = p * np.exp(attention * cosines)
    return q * p.sum(1, keepdims=True) / q.sum(1, keepdims=True)


def by_hand(
    client: Client, w: Arrays, kept: np.ndarray | float = 1.0, attention: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits [n, C] and the hidden layer before its ReLU [n, H] of one client; what is kept is multiplied with."""
    p, order = gcn_operator(client), len(w["steps"]) - 1
    hidden = dense_features(client).astype(np.float64) @ w["hidden.weight"] + w["hidden.bias"]
    z = (np.maximum(hidden, 0) * kept) @ w["classifier.weight"] + w["classifier.bias"]
    p = attended(p, z, attention)
    walk = [0.1 * 0.9**k if k < order else 0.9**order for k in range(order + 1)]
    return sum((walk[k] + w["steps"][k]) * (matrix_power(p, k) @ z) for k in range(order + 1)), hidden


def of_client(weights: dict[str, Tensor], m: int) -> Arrays:
    return {name: w[m].double().numpy() for name, w in weights.items()}


def assert_equals_the_formula(net: GprNet, cohort: Cohort, seed: int, rate: float = 0.0) -> None:
    """Every row without dropout; the training nodes with it."""
    weights = reference.random_weights(net.shapes(), cohort.clients, seed)
    dropout = Dropout(rate, client_keys(seed, cohort), 3)
    keep = dropout.mask(cohort, HIDDEN, 0) if rate else torch.ones(cohort.rows, HIDDEN)
    whole, part = net(cohort, weights), net.training(cohort, weights, dropout)
    for m, client in enumerate(cohort.members):
        mine, own = of_client(weights, m), client.training_nodes
        logits, hidden = by_hand(client, mine, attention=net.attention)
        assert_near(cohort.parts_of(whole.logits)[m], torch.from_numpy(logits), 2e-5)
        assert_near(cohort.parts_of(whole.embedding)[m], torch.from_numpy(hidden), 2e-5)
        logits, _ = by_hand(client, mine, cohort.parts_of(keep)[m].double().numpy(), net.attention)
        assert_near(cohort.training.parts_of(part.logits)[m], torch.from_numpy(logits[own]), 2e-5)
        assert_near(cohort.training.parts_of(part.embedding)[m], torch.from_numpy(hidden[own]), 2e-5)


# -- the formula ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "features"), LAYOUTS)
@pytest.mark.parametrize("order", ORDERS)
@example(clients=with_weights(hard_clients()), seed=0, rate=0.5, attention=2.0)
@settings(max_examples=8)
@given(clients=any_clients, seed=seeds, rate=st.sampled_from([0.0, 0.5, 0.8]), attention=STRENGTHS)
def test_the_network_equals_its_formula(
    order: int, rows: str, features: str, clients: list[Client], seed: int, rate: float, attention: float
) -> None:
    cohort = lay(clients, rows, features)
    assert_equals_the_formula(make(cohort, order, attention=attention), cohort, seed, rate)


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("counts", [(5, 5, 5), (0, 4, 0), (1, 1, 1, 1, 14), (0, 0)])
@pytest.mark.parametrize("order", ORDERS)
def test_so_it_does_with_few_or_no_training_nodes(order: int, counts: tuple[int, ...], rows: str) -> None:
    cohort = lay(with_training_nodes(counts), rows)
    for attention in (0.0, 2.0):
        assert_equals_the_formula(make(cohort, order, attention=attention), cohort, 3, 0.5)


@pytest.mark.parametrize("rows", PADDING)
@settings(max_examples=8)
@given(clients=any_clients, seed=seeds, order=st.sampled_from(ORDERS), attention=STRENGTHS)
def test_training_is_the_network_at_the_training_nodes(
    rows: str, clients: list[Client], seed: int, order: int, attention: float
) -> None:
    """Gradients too, of every weight; without dropout, as every row is computed without."""
    cohort = lay(clients, rows)
    net, training = make(cohort, order, attention=attention), cohort.training
    weights = reference.random_weights(net.shapes(), len(clients), seed)
    pull = torch.randn(len(cohort.train), class_count(cohort), generator=torch.Generator().manual_seed(seed + 1))
    found, calm = [], Dropout(0.0, client_keys(seed, cohort), 5)
    for call, chosen in ((net, cohort.train), (partial(net.training, dropout=calm), training.real)):
        leaves = reference.leaves(weights)
        out = call(cohort, leaves)
        grads = torch.autograd.grad((out.logits[chosen] * pull).sum(), list(leaves.values()))
        found.append([out.logits[chosen].detach(), out.embedding[chosen].detach(), *grads])
    for one, other in zip(*found, strict=True):
        assert bool(torch.isfinite(other).all())
        assert_near(other, one, 5e-5)


@settings(max_examples=8)
@given(clients=client_lists(most=5), seed=seeds, attention=STRENGTHS)
def test_a_client_computes_the_same_alone(clients: list[Client], seed: int, attention: float) -> None:
    """A cohort of M and M cohorts of one agree, dropout included."""
    together = lay(clients, "padded")
    net = make(together, dropout=0.8, attention=attention)
    weights = reference.random_weights(net.shapes(), len(clients), seed)
    logits = net(together, weights).logits
    trained = net.training(together, weights, Dropout(0.5, client_keys(seed, together), 7)).logits
    for m, client in enumerate(clients):
        alone = lay([client], "compact")
        own = {name: w[m : m + 1] for name, w in weights.items()}
        assert_near(net(alone, own).logits, together.parts_of(logits)[m], 2e-5)
        mine = net.training(alone, own, Dropout(0.5, client_keys(seed, alone), 7)).logits
        assert_near(mine[alone.training.real], together.training.parts_of(trained)[m], 2e-5)


def test_edge_weights_act() -> None:
    clients = hard_clients()[2:3] + hard_clients()[4:]
    plain, weighted = lay(clients), lay(with_weights(clients))
    net = make(plain)
    weights = reference.random_weights(net.shapes(), 2, 0)
    calm = Dropout(0.0, client_keys(0, plain), 0)
    assert float((net(plain, weights).logits - net(weighted, weights).logits).abs().max()) > 0.01
    found = [net.training(cohort, weights, calm).logits for cohort in (plain, weighted)]
    assert float((found[0] - found[1]).abs().max()) > 0.01
    # Equal weights are none, whatever they are.
    same = [
        replace(c, graph=replace(c.graph, edge_weights=np.full(c.graph.edges.shape[1], 7.0, np.float32)))
        for c in clients
    ]
    assert_near(net(lay(same), weights).logits, net(plain, weights).logits)


def test_nodes_attend_to_neighbours_that_score_classes_alike() -> None:
    """A node with a neighbour of its class and one of the other: with attention t the first counts e^2t times as much."""
    x, edges = np.array([[1, 0], [1, 0], [0, 1]], np.float32), np.array([[0, 0], [1, 2]])
    graph = Graph("three", edges, x, np.array([0, 0, 1]), 2)
    cohort = lay([Client(0, graph, np.zeros(3, np.int8))])
    weights = {name: torch.zeros(1, *shape) for name, shape in GprNet(2, 2, 2, 1).shapes().items()}
    weights |= {"hidden.weight": torch.eye(2)[None], "classifier.weight": torch.eye(2)[None]}
    weights["steps"] = torch.tensor([[-0.1, 0.1]])  # logits = P z
    alike, other = 1 / 3 + 1 / 6**0.5, 1 / 6**0.5  # P of the node itself and of its neighbour, and of the other one
    for attention in (0.0, 2.0):
        logits = GprNet(2, 2, 2, 1, None, attention)(cohort, weights).logits[0]
        assert float(logits[0] / logits[1]) == pytest.approx(alike / other * np.exp(2 * attention), rel=1e-4)
        assert float(logits.sum()) == pytest.approx(alike + other, rel=1e-5)


def test_no_gradient_passes_through_attention() -> None:
    """Gradients are those of the same network with attention as a constant."""
    cohort = lay(hard_clients())
    net = make(cohort, attention=2.0)
    weights = reference.random_weights(net.shapes(), cohort.clients, 0)
    seen: list[Tensor] = []
    attended_now = gpr._Entries.attended

    def remember(self: object, z: Tensor, strength: float) -> Tensor:
        seen.append(attended_now(self, z, strength))  # type: ignore[arg-type]
        return seen[-1]

    def gradients(act: object) -> list[Tensor]:
        with mock.patch.object(gpr._Entries, "attended", act):
            leaves = reference.leaves(weights)
            return list(torch.autograd.grad(net(cohort, leaves).logits.square().sum(), list(leaves.values())))

    found, fixed = gradients(remember), gradients(lambda *_: seen[0].detach())
    assert not seen[0].requires_grad
    assert float(seen[0].std()) > 0
    for one, other in zip(found, fixed, strict=True):
        assert_near(one, other, 1e-6)


def test_what_is_propagated_has_a_column_for_each_class() -> None:
    rng = np.random.default_rng(0)
    clients = [random_client(rng, m, 200, 300, edges=0.02, filled=0.03, sparse=True) for m in range(2)]
    cohort = lay(clients, "padded", "sparse")
    net = replace(make(cohort), hidden=8)
    weights = reference.leaves(reference.random_weights(net.shapes(), 2, 0))
    with Largest() as largest:
        net.training(cohort, weights, Dropout(0.5, client_keys(0, cohort), 0)).logits.sum().backward()
        net(cohort, weights)
    assert largest.numbers <= max(2 * 300 * 8, 400 * 8)  # the weights, the hidden layer


# -- the start: APPNP ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", range(1, 12))
def test_the_weights_of_a_walk_sum_to_one(order: int) -> None:
    """They are the chances to have gone k steps since the walk began anew, after `order` steps."""
    weights = walk_weights(order)
    assert len(weights) == order + 1
    assert sum(weights) == pytest.approx(1.0, abs=1e-12)
    chances = [1.0]
    for _ in range(order):
        chances = [0.1, *(0.9 * chance for chance in chances)]  # begin anew, or go a step on
    assert weights == pytest.approx(chances, abs=1e-12)


@pytest.mark.parametrize("rows", PADDING)
@example(clients=with_weights(hard_clients()), seed=0, order=4)
@settings(max_examples=8)
@given(clients=any_clients, seed=seeds, order=st.integers(1, 6))
def test_at_the_start_it_is_appnp(rows: str, clients: list[Client], seed: int, order: int) -> None:
    """fedquilt's own, with dropout too, and PyTorch Geometric's layer."""
    cohort = lay(clients, rows)
    net, appnp = make(cohort, order), Appnp(cohort.features, HIDDEN, class_count(cohort), order)
    weights = reference.random_weights(net.shapes(), len(clients), seed)
    weights["steps"].zero_()
    theirs = {name.replace("hidden.", "conv1."): w for name, w in weights.items() if name != "steps"}
    assert set(theirs) == set(appnp.shapes())
    dropout = Dropout(0.5, client_keys(seed, cohort), 2)
    for mine, other in (
        (net(cohort, weights), appnp(cohort, theirs)),
        (net.training(cohort, weights, dropout), appnp.training(cohort, theirs, dropout)),
    ):
        assert_near(mine.logits, other.logits, 2e-5)
        assert torch.equal(mine.embedding, other.embedding)
    logits = cohort.parts_of(net(cohort, weights).logits)
    layer = APPNP(K=order, alpha=0.1)
    for m, client in enumerate(clients):
        w = {name: tensor[m].double() for name, tensor in weights.items()}
        z = torch.relu(reference.features(client) @ w["hidden.weight"] + w["hidden.bias"])
        z = z @ w["classifier.weight"] + w["classifier.bias"]
        strengths = torch.from_numpy(relative_weights(client)).repeat(2)
        assert_near(logits[m], layer(z, edge_index(client), strengths), 2e-5)


def test_it_starts_there_and_neighbours_may_come_to_speak_against_their_class() -> None:
    """Steps are learned from zero; where they are the weights of the walk with the other sign, nothing is left."""
    cohort = lay(hard_clients())
    net = make(cohort)
    start = common_start(net.shapes(), 5, cohort.clients, torch.device("cpu"))
    assert not bool(start["steps"].any())
    assert bool(start["hidden.weight"].any())
    weights = reference.random_weights(net.shapes(), cohort.clients, 0)
    turned = {**weights, "steps": -torch.tensor(walk_weights(4)).expand(cohort.clients, -1)}
    assert_near(net(cohort, turned).logits, torch.zeros(cohort.rows, class_count(cohort)), 1e-6)
    only = turned["steps"].clone()
    only[:, 1] -= 1.0  # logits = -P z
    against = net(cohort, turned | {"steps": only}).logits
    for m, client in enumerate(cohort.members):
        w = of_client(weights, m)
        hidden = dense_features(client) @ w["hidden.weight"] + w["hidden.bias"]
        z = np.maximum(hidden, 0) @ w["classifier.weight"] + w["classifier.bias"]
        assert_near(cohort.parts_of(against)[m], torch.from_numpy(-gcn_operator(client) @ z), 2e-5)


# -- what is said of it --------------------------------------------------------------------------------------------------


def test_names_of_weights_tell_what_they_do() -> None:
    net = GprNet(6, HIDDEN, 3, 4)
    assert net.shapes() == {
        "hidden.weight": (6, HIDDEN),
        "hidden.bias": (HIDDEN,),
        "classifier.weight": (HIDDEN, 3),
        "classifier.bias": (3,),
        "steps": (5,),
    }
    assert matrices(net.shapes()) == ["hidden.weight", "classifier.weight"]
    assert net.feature_weights == ("hidden.weight",)
    assert not getattr(net, "ignores_edge_weights", "")


def test_its_own_dropout_rate_is_used() -> None:
    cohort = lay(with_training_nodes((9, 12)))
    weights = reference.random_weights(make(cohort).shapes(), 2, 0)

    def logits(own: float | None, rate: float) -> Tensor:
        return make(cohort, dropout=own).training(cohort, weights, Dropout(rate, client_keys(0, cohort), 1)).logits

    for rate in (0.0, 0.3, 0.5):
        assert torch.equal(logits(0.8, rate), logits(None, 0.8))
        assert torch.equal(logits(0.0, rate), logits(None, 0.0))
    assert not torch.equal(logits(None, 0.3), logits(None, 0.8))
    # Outside training nothing is dropped.
    assert torch.equal(make(cohort, dropout=0.8)(cohort, weights).logits, make(cohort)(cohort, weights).logits)
