"""The network with private graph filters against its formula in NumPy, client by client, in double precision."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Sequence
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.linalg import matrix_power, norm
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import client_keys
from fedquilt.graphs.graph import Graph
from fedquilt.nn import filters
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.filters import COLUMNS, FILTER, IDENTITY, FilterNet, distance_scales, unit_factors
from fedquilt.nn.models import Output
from fedquilt.tasks.node_classification import class_count
from support.clients import (
    LAYOUTS,
    PADDING,
    Largest,
    assert_near,
    client_lists,
    dense_features,
    dense_operator,
    hard_clients,
    lay,
    random_client,
    with_training_nodes,
)

BASES = ["scaled", "monomial", "chebyshev"]
ORDERS = [1, 2, 4]
GROUPS = [1, 2, 5]
IDENTITIES = [0, 3, 50]  # none, fewer rows than most clients have nodes, more
HIDDEN = 10
seeds = st.integers(0, 2**31)
Arrays = dict[str, np.ndarray]


def make(cohort: Cohort, basis: str = "scaled", order: int = 4, groups: int = 5, **changes: Any) -> FilterNet:
    facts = {"hidden": HIDDEN, "identity": 0, "node_dropout": 0.0} | changes
    return FilterNet(
        features=cohort.features, outputs=class_count(cohort), order=order, groups=groups, basis=basis, **facts
    )


def random_weights(net: FilterNet, clients: int, seed: int) -> dict[str, Tensor]:
    """Everything the network reads, stacked [M, ...], different from client to client."""
    stream = torch.Generator().manual_seed(seed)
    shapes = net.shapes() | {FILTER: (net.groups, net.order + 1)}
    if net.identity:
        shapes |= {IDENTITY: (net.identity, net.hidden)}
    return {name: torch.randn(clients, *shape, generator=stream) / 2 for name, shape in shapes.items()}


def of_client(weights: dict[str, Tensor], m: int) -> Arrays:
    return {name: w[m].double().numpy() for name, w in weights.items()}


def calm(cohort: Cohort) -> Dropout:
    """No dropout."""
    return Dropout(0.0, client_keys(0, cohort), 0)


# -- the formula -----------------------------------------------------------------------------------


def scales(client: Client, order: int) -> list[float]:
    """s_k = ||X|| / ||A^k X||, zero where nothing is left, ones where there was nothing."""
    a, x = dense_operator(client), dense_features(client).astype(np.float64)
    if not x.any():
        return [1.0] * (order + 1)
    lengths = [norm(matrix_power(a, k) @ x) for k in range(order + 1)]
    return [lengths[0] / length if length > 1e-6 * lengths[0] else 0.0 for length in lengths]


def basis_matrices(client: Client, basis: str, order: int) -> list[np.ndarray]:
    """s_k A^k, A^k or T_k(A): K + 1 arrays [n, n]."""
    a = dense_operator(client)
    if basis == "chebyshev":
        out = [np.eye(len(a)), a]
        for _ in range(2, order + 1):
            out.append(2 * a @ out[-1] - out[-2])
        return out
    factors = scales(client, order) if basis == "scaled" else [1.0] * (order + 1)
    return [s * matrix_power(a, k) for k, s in enumerate(factors)]


def by_hand(
    net: FilterNet,
    client: Client,
    w: Arrays,
    nodes_kept: np.ndarray | float = 1.0,
    units_kept: np.ndarray | float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Logits [n, C] and the hidden layer before its ReLU [n, H] of one client; what is kept is multiplied with."""
    x = dense_features(client).astype(np.float64)
    powers = basis_matrices(client, net.basis, net.order)
    width = net.hidden // net.groups
    parts = []
    for g in range(net.groups):
        units = slice(g * width, (g + 1) * width)
        z = x @ w["hidden.weight"][:, units]
        if net.identity:
            z = z + np.stack([w[IDENTITY][node % net.identity, units] for node in range(len(x))])
        z = z * nodes_kept
        parts.append(sum(w[FILTER][g, k] * (b @ z) for k, b in enumerate(powers)) + w["hidden.bias"][units])
    h = np.concatenate(parts, axis=1)
    return (np.maximum(h, 0) * units_kept) @ w["classifier.weight"] + w["classifier.bias"], h


def assert_equals_the_formula(net: FilterNet, cohort: Cohort, weights: dict[str, Tensor]) -> None:
    whole, part = net(cohort, weights), net.training(cohort, weights, calm(cohort))
    for m, client in enumerate(cohort.members):
        logits, h = by_hand(net, client, of_client(weights, m))
        assert_near(cohort.parts_of(whole.logits)[m], torch.from_numpy(logits), 5e-5)
        assert_near(cohort.parts_of(whole.embedding)[m], torch.from_numpy(h), 5e-5)
        own = client.training_nodes
        assert_near(cohort.training.parts_of(part.logits)[m], torch.from_numpy(logits[own]), 5e-5)
        assert_near(cohort.training.parts_of(part.embedding)[m], torch.from_numpy(h[own]), 5e-5)


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("basis", BASES)
def test_the_network_equals_its_formula(basis: str, order: int, groups: int, identity: int, rows: str) -> None:
    cohort = lay(hard_clients(), rows)
    net = make(cohort, basis, order, groups, identity=identity)
    assert_equals_the_formula(net, cohort, random_weights(net, cohort.clients, order))


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("groups", [1, 5])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("basis", BASES)
def test_so_it_does_with_fewer_hidden_units_than_features(basis: str, order: int, groups: int, rows: str) -> None:
    """Then what features become is spread, not features."""
    cohort = lay(hard_clients(), rows)
    net = make(cohort, basis, order, groups, hidden=5)
    assert net.hidden < net.features <= HIDDEN
    assert_equals_the_formula(net, cohort, random_weights(net, cohort.clients, order))


@pytest.mark.parametrize(("rows", "features"), LAYOUTS)
@pytest.mark.parametrize("basis", BASES)
@settings(max_examples=8)
@given(
    clients=client_lists(most=4),
    seed=seeds,
    order=st.sampled_from(ORDERS),
    groups=st.sampled_from(GROUPS),
    identity=st.sampled_from(IDENTITIES),
)
def test_so_it_does_for_any_clients(
    basis: str, rows: str, features: str, clients: list[Client], seed: int, order: int, groups: int, identity: int
) -> None:
    cohort = lay(clients, rows, features)
    net = make(cohort, basis, order, groups, identity=identity)
    assert_equals_the_formula(net, cohort, random_weights(net, cohort.clients, seed))


def test_chebyshev_polynomials_are_cosines_of_multiples() -> None:
    """Guards the recurrence that the reference uses: T_k(cos t) = cos k t at the eigenvalues of A."""
    client = random_client(np.random.default_rng(0), 0, 12)
    values, vectors = np.linalg.eigh(dense_operator(client))
    angle = np.arccos(np.clip(values, -1, 1))
    for k, t in enumerate(basis_matrices(client, "chebyshev", 4)):
        assert np.allclose(t, vectors @ np.diag(np.cos(k * angle)) @ vectors.T, atol=1e-7)


@pytest.mark.parametrize(("hidden", "groups"), [(10, 5), (8, 5), (7, 2), (3, 5), (5, 1)])
def test_each_unit_belongs_to_one_group_and_groups_are_as_wide_as_can_be(hidden: int, groups: int) -> None:
    cohort = lay([random_client(np.random.default_rng(0), 0, 12, filled=1.0)])
    net = make(cohort, order=2, groups=groups, hidden=hidden)
    weights = random_weights(net, 1, 0)
    weights["hidden.bias"].zero_()
    owners = []
    for g in range(groups):
        one = torch.zeros_like(weights[FILTER])
        one[:, g] = weights[FILTER][:, g]
        owners.append(net(cohort, weights | {FILTER: one}).embedding.abs().sum(0) > 0)
    owned = torch.stack(owners)
    assert bool((owned.sum(0) == 1).all())
    assert owned.long().argmax(0).tolist() == sorted(owned.long().argmax(0).tolist())
    assert int(owned.sum(1).max() - owned.sum(1).min()) <= 1


# -- training --------------------------------------------------------------------------------------


def assert_training_is_the_network_at_training_nodes(net: FilterNet, cohort: Cohort, seed: int) -> None:
    """Values and gradients."""
    weights, training = random_weights(net, cohort.clients, seed), cohort.training
    pull = torch.randn(len(cohort.train), class_count(cohort), generator=torch.Generator().manual_seed(seed))
    found = []
    for part in (False, True):
        leaves = {name: w.clone().requires_grad_() for name, w in weights.items()}
        out = net.training(cohort, leaves, calm(cohort)) if part else net(cohort, leaves)
        chosen = training.real if part else cohort.train
        grads = torch.autograd.grad((out.logits[chosen] * pull).sum(), list(leaves.values()))
        found.append([out.logits[chosen].detach(), out.embedding[chosen].detach(), *grads])
    for whole, own in zip(*found, strict=True):
        assert bool(torch.isfinite(own).all())
        assert_near(own, whole, 2e-5)


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("basis", BASES)
@settings(max_examples=8)
@given(clients=client_lists(most=5), seed=seeds, order=st.sampled_from(ORDERS), identity=st.sampled_from(IDENTITIES))
def test_training_is_the_network_at_the_training_nodes(
    basis: str, rows: str, clients: list[Client], seed: int, order: int, identity: int
) -> None:
    cohort = lay(clients, rows)
    assert_training_is_the_network_at_training_nodes(make(cohort, basis, order, 2, identity=identity), cohort, seed)


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("counts", [(5, 5, 5), (0, 4, 0), (0, 0, 0, 0, 12), (1, 1, 1, 1, 14)])
def test_training_with_few_or_no_training_nodes(counts: tuple[int, ...], rows: str) -> None:
    cohort = lay(with_training_nodes(counts), rows)
    assert_training_is_the_network_at_training_nodes(make(cohort, identity=3), cohort, 3)


def test_training_without_any_training_node_is_empty() -> None:
    cohort = lay(with_training_nodes((0, 0)))
    net = make(cohort, node_dropout=0.5)
    out = net.training(cohort, random_weights(net, 2, 0), Dropout(0.5, client_keys(0, cohort), 0))
    assert out.logits.shape == (0, class_count(cohort))


@pytest.mark.parametrize(("identity", "hidden"), [(0, 4), (0, 6), (3, 4)])
@pytest.mark.parametrize("basis", BASES)
def test_gradients_equal_finite_differences_of_the_formula(basis: str, identity: int, hidden: int) -> None:
    """At the training nodes with dropout of nodes and units; what is kept is read off, the rest is NumPy."""
    clients = hard_clients()
    for client in clients:
        client.split[: -(-client.graph.nodes // 2)] = 0
        client.graph.y[client.graph.y < 0] = 0
    cohort = lay(clients)
    net = make(cohort, basis, 2, 2, hidden=hidden, identity=identity, node_dropout=0.25)
    weights = random_weights(net, cohort.clients, 1)
    dropout = Dropout(0.5, client_keys(7, cohort), 3)
    pull = torch.randn(cohort.training.rows, class_count(cohort), generator=torch.Generator().manual_seed(2))
    leaves = {name: w.clone().requires_grad_() for name, w in weights.items()}
    logits = net.training(cohort, leaves, dropout).logits
    real = torch.zeros(cohort.training.rows, 1)
    real[cohort.training.real] = 1.0
    found = torch.autograd.grad((logits * pull * real).sum(), list(leaves.values()))
    nodes = cohort.parts_of(node_mask(net, cohort, dropout))
    units = cohort.parts_of(dropout.mask(cohort, net.hidden, 0))
    for m, client in enumerate(clients):
        own, mine = of_client(weights, m), client.training_nodes
        kept = nodes[m].double().numpy(), units[m].double().numpy()
        pulls = cohort.training.parts_of(pull)[m].double().numpy()

        def value(w: Arrays, client=client, kept=kept, mine=mine, pulls=pulls) -> float:
            return float((by_hand(net, client, w, *kept)[0][mine] * pulls).sum())

        for name, grad in zip(weights, found, strict=True):
            expected = np.zeros_like(own[name])
            for place in np.ndindex(expected.shape):
                step = np.zeros_like(expected)
                step[place] = 1e-6
                expected[place] = (value(own | {name: own[name] + step}) - value(own | {name: own[name] - step})) / 2e-6
            assert_near(grad[m], torch.from_numpy(expected), 5e-5)


@pytest.mark.parametrize("basis", BASES)
@example(clients=hard_clients(), seed=0, identity=3)
@settings(max_examples=6)
@given(clients=client_lists(most=4), seed=seeds, identity=st.sampled_from(IDENTITIES))
def test_a_client_computes_the_same_alone(basis: str, clients: list[Client], seed: int, identity: int) -> None:
    """The simulation equals the deployment: a cohort of M and M cohorts of one agree, dropout included."""
    together = lay(clients, "padded")
    net = make(together, basis, identity=identity, node_dropout=0.3)
    weights = random_weights(net, len(clients), seed)

    def both(cohort: Cohort, weights: dict[str, Tensor]) -> tuple[Output, Output]:
        return net(cohort, weights), net.training(cohort, weights, Dropout(0.5, client_keys(seed, cohort), 7))

    whole, part = both(together, weights)
    for m, client in enumerate(clients):
        alone = lay([client], "compact")
        mine, own = both(alone, {name: w[m : m + 1] for name, w in weights.items()})
        assert_near(mine.logits, together.parts_of(whole.logits)[m], 2e-5)
        assert_near(own.logits, together.training.parts_of(part.logits)[m], 2e-5)


# -- dropping nodes --------------------------------------------------------------------------------


def everybody_trains(sizes: tuple[int, ...] = (300, 200), edges: float = 0.02) -> list[Client]:
    rng = np.random.default_rng(1)
    clients = [random_client(rng, m, n, edges=edges, filled=1.0) for m, n in enumerate(sizes)]
    for client in clients:
        client.split[:] = 0
        client.graph.y[client.graph.y < 0] = 0
    return clients


def all_ones(client: Client) -> Client:
    """The client with one feature, a one at every node, all of which are for training."""
    graph, nodes = client.graph, client.graph.nodes
    ones = Graph("ones", graph.edges, np.ones((nodes, 1), np.float32), np.zeros(nodes, np.int64), 1)
    return Client(client.id, ones, np.zeros(nodes, np.int8))


def node_mask(net: FilterNet, cohort: Cohort, dropout: Dropout) -> Tensor:
    """[R, 1] what each node's input is multiplied with in a training step.

    Read off a network that sees a one at every node and looks at the node itself only.
    """
    ones = Cohort([all_ones(client) for client in cohort.members], padding=cohort.padding)
    looking = FilterNet(1, 3, 1, 1, 1, 0, net.node_dropout, "monomial")
    weights = {name: torch.ones(cohort.clients, *shape) for name, shape in looking.shapes().items()}
    weights["hidden.bias"].zero_()
    weights[FILTER] = torch.tensor([[[1.0, 0.0]]]).repeat(cohort.clients, 1, 1)
    seen = looking.training(ones, weights, Dropout(0.0, dropout.keys, dropout.step)).embedding
    parts = ones.training.parts_of(seen)
    for part in parts:
        assert torch.equal(part, part[:, :1].expand_as(part))  # a node is dropped with all its units or not at all
    return cohort.rows_of([part[:, :1] for part in parts], 0.0)


@pytest.mark.parametrize("rate", [0.25, 0.2])
def test_whole_nodes_are_dropped_and_the_others_scaled_up(rate: float) -> None:
    cohort = lay(everybody_trains())
    dropout = Dropout(0.0, client_keys(0, cohort), 0)
    mask = node_mask(make(cohort, node_dropout=rate), cohort, dropout)
    for part in cohort.parts_of(mask):
        assert_near(part[part > 0], torch.full_like(part[part > 0], 1 / (1 - rate)), 1e-4)
        dropped, nodes = float((part == 0).float().mean()), len(part)
        assert abs(dropped - rate) < 5 * math.sqrt(rate * (1 - rate) / nodes)


@pytest.mark.parametrize("identity", [0, 3])
@pytest.mark.parametrize("basis", BASES)
def test_nodes_are_dropped_before_they_spread(basis: str, identity: int) -> None:
    """Their neighbours do not hear of them either, and neither their features nor their identities are left."""
    cohort = lay(everybody_trains((40, 25), 0.1))
    net = make(cohort, basis, 2, 2, node_dropout=0.4, identity=identity)
    weights, dropout = random_weights(net, 2, 0), Dropout(0.0, client_keys(0, cohort), 5)
    mask = node_mask(net, cohort, dropout)
    found = net.training(cohort, weights, dropout)
    for m, client in enumerate(cohort.members):
        kept = cohort.parts_of(mask)[m].double().numpy()
        assert 0.1 < (kept == 0).mean() < 0.8
        logits, h = by_hand(net, client, of_client(weights, m), kept)
        assert_near(cohort.training.parts_of(found.embedding)[m], torch.from_numpy(h), 5e-5)
        assert_near(cohort.training.parts_of(found.logits)[m], torch.from_numpy(logits), 5e-5)


def test_which_nodes_are_dropped_belongs_to_the_client_and_the_step() -> None:
    clients = everybody_trains()
    cohort = lay(clients)
    net = make(cohort, node_dropout=0.3)

    def masks(clients: list[Client], step: int, rate: float = 0.0, seed: int = 0) -> list[Tensor]:
        cohort = lay(clients)
        return cohort.parts_of(node_mask(net, cohort, Dropout(rate, client_keys(seed, cohort), step)))

    first, second = masks(clients, 0)
    assert torch.equal(masks(clients[1:], 0)[0], second)  # whoever else is there
    assert torch.equal(masks(clients[::-1], 0)[1], first)
    assert torch.equal(masks(clients, 0, rate=0.5)[0], first)  # however many units are dropped
    assert not torch.equal(first[: len(second)], second)
    assert not torch.equal(masks(clients, 1)[0], first)
    assert not torch.equal(masks(clients, 0, seed=1)[0], first)


def test_nodes_are_dropped_in_training_only() -> None:
    cohort = lay(everybody_trains((40, 25)))
    weights = random_weights(make(cohort), 2, 0)
    outputs = [make(cohort, node_dropout=rate)(cohort, weights).logits for rate in (0.0, 0.5)]
    assert torch.equal(*outputs)


# -- how loud distances are ------------------------------------------------------------------------


@example(clients=hard_clients(), order=4)
@given(clients=client_lists(most=2), order=st.integers(1, 5))
def test_distance_scales_equal_numpy(clients: list[Client], order: int) -> None:
    for client in clients:
        found = distance_scales(client, order)
        assert found.shape == (order + 1,)
        assert found.dtype == np.float32
        assert np.allclose(found, scales(client, order), rtol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("features", [COLUMNS - 1, COLUMNS, COLUMNS + 1, 2 * COLUMNS + 40])
def test_distance_scales_of_more_features_than_are_dense_at_a_time(features: int, sparse: bool) -> None:
    client = random_client(np.random.default_rng(0), 0, 15, features, filled=0.3, sparse=sparse)
    assert np.allclose(distance_scales(client, 4), scales(client, 4), rtol=1e-5)


def test_distance_scales_are_zero_where_nothing_is_left() -> None:
    rng = np.random.default_rng(0)
    assert distance_scales(random_client(rng, 0, 8, filled=0.0), 3).tolist() == [1, 1, 1, 1]
    assert distance_scales(random_client(rng, 0, 8, filled=0.0, sparse=True), 2).tolist() == [1, 1, 1]
    assert distance_scales(random_client(rng, 0, 8, edges=0.0, filled=1.0), 3).tolist() == [1, 0, 0, 0]
    assert distance_scales(random_client(rng, 0, 1, filled=1.0), 2).tolist() == [1, 0, 0]
    # Two leaves of a star that are opposites: the middle hears nothing, however far.
    star = Graph("star", np.array([[0, 0], [1, 2]]), np.array([[0], [1], [-1]], np.float32), np.zeros(3, int), 1)
    assert distance_scales(Client(0, star, np.zeros(3, np.int8)), 4).tolist() == [1, 0, 0, 0, 0]


def test_scaled_distances_are_equally_loud() -> None:
    client = random_client(np.random.default_rng(0), 0, 30, filled=1.0)
    a, x, s = dense_operator(client), dense_features(client).astype(np.float64), distance_scales(client, 4)
    assert s[4] > 2  # they fade otherwise
    for k in range(5):
        assert norm(s[k] * matrix_power(a, k) @ x) == pytest.approx(norm(x), rel=1e-5)


# -- the start -------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_one_group_starts_with_all_distances_alike(order: int) -> None:
    net = FilterNet(6, HIDDEN, 3, order, 1, 0, 0.0)
    assert_near(net.private_start(torch.zeros(3, 1))[FILTER], torch.full((3, 1, order + 1), 1 / (order + 1)), 1e-7)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("groups", [2, 3, 5, 7])
def test_several_groups_start_with_one_distance_each_from_near_to_far(order: int, groups: int) -> None:
    start = FilterNet(6, HIDDEN, 3, order, groups, 0, 0.0).private_start(torch.zeros(3, 1))[FILTER]
    assert start.shape == (3, groups, order + 1)
    assert torch.equal(start.sort(-1).values[..., -1], torch.ones(3, groups))
    assert torch.equal(start.sum(-1), torch.ones(3, groups))
    for one in start:
        distances = one.argmax(-1).tolist()
        assert distances == sorted(distances)
        assert (distances[0], distances[-1]) == (0, order)
        assert len(set(distances)) == min(groups, order + 1)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_the_table_of_identities_starts_blank_and_is_there_where_asked_for(identity: int) -> None:
    start = FilterNet(6, HIDDEN, 3, 4, 5, identity, 0.0).private_start(torch.zeros(2, 1))
    assert set(start) == ({FILTER, IDENTITY} if identity else {FILTER})
    if identity:
        assert torch.equal(start[IDENTITY], torch.zeros(2, identity, HIDDEN))


@pytest.mark.parametrize("identity", IDENTITIES)
def test_what_is_private_is_no_shape_of_the_model(identity: int) -> None:
    shapes = FilterNet(6, HIDDEN, 3, 4, 5, identity, 0.0).shapes()
    assert shapes == {
        "hidden.weight": (6, HIDDEN),
        "hidden.bias": (HIDDEN,),
        "classifier.weight": (HIDDEN, 3),
        "classifier.bias": (3,),
    }


def test_nothing_grows_with_features_times_nodes() -> None:
    rng = np.random.default_rng(0)
    clients = [random_client(rng, m, 200, 300, edges=0.02, filled=0.03, sparse=True) for m in range(2)]
    cohort = lay(clients, "padded", "sparse")
    net = make(cohort, hidden=8, groups=4, node_dropout=0.5)
    weights = {name: w.requires_grad_() for name, w in random_weights(net, 2, 0).items()}
    with Largest() as largest:
        net.training(cohort, weights, Dropout(0.5, client_keys(0, cohort), 0)).logits.sum().backward()
        net(cohort, weights)
    assert largest.numbers <= max(2 * 300 * 8, 400 * 8)  # the weights, the hidden layer


# -- many clients in one pass ------------------------------------------------------------------------


@pytest.mark.parametrize("rows", PADDING)
@example(clients=hard_clients())
@given(clients=client_lists())
def test_operators_hold_every_clients_own(rows: str, clients: list[Client]) -> None:
    cohort = lay(clients, rows)
    whole = filters._operator(cohort).forward.to_dense().numpy()
    training = filters._training_operator(cohort).forward.to_dense().numpy()
    expected = np.zeros((cohort.rows, cohort.rows))
    for first, client in zip(cohort.start, clients, strict=True):
        block = slice(first, first + client.graph.nodes)
        expected[block, block] = dense_operator(client)
    assert np.array_equal(whole, expected.astype(np.float32))
    assert np.array_equal(training[cohort.training.real.numpy()], whole[cohort.train.numpy()])
    padding = np.setdiff1d(np.arange(cohort.training.rows), cohort.training.real.numpy())
    assert not training[padding].any()


@given(clients=client_lists(most=8), most=st.integers(1, 60))
def test_bunches_are_the_clients_in_their_order_and_no_larger_than_they_must_be(
    clients: list[Client], most: int
) -> None:
    with mock.patch.object(filters, "BUNCH", most):
        made = list(filters.bunches(clients))
    assert [client for some in made for client in some] == clients
    sizes = [[client.graph.nodes for client in some] for some in made]
    assert all(len(some) == 1 or sum(some) <= most for some in sizes)
    assert all(sum(one) + two[0] > most for one, two in itertools.pairwise(sizes))


@given(clients=client_lists(most=6), most=st.integers(1, 60), order=st.sampled_from(ORDERS))
def test_a_client_has_the_same_scales_in_any_company(clients: list[Client], most: int, order: int) -> None:
    alone = np.stack([distance_scales(client, order) for client in clients])
    with mock.patch.object(filters, "BUNCH", most):
        together = filters._scales(lay(clients), order)
    assert together.dtype == torch.float32
    assert np.array_equal(together.numpy(), alone)


def test_what_is_made_for_a_client_is_kept_with_it() -> None:
    clients = with_training_nodes((3, 1, 4, 2))
    asked: list[int] = []

    def ids(some: Sequence[Client]) -> np.ndarray:
        asked.extend(client.id for client in some)
        return np.array([[client.id] for client in some])

    def found(*places: int) -> list[list[float]]:
        return filters.of_each_once(lay([clients[m] for m in places]), "its number", ids).tolist()

    assert found(0, 2) == [[0], [2]]
    assert found(2, 0) == [[2], [0]]
    assert asked == [0, 2]
    assert found(0, 1, 2, 3) == [[0], [1], [2], [3]]
    assert asked == [0, 2, 0, 1, 2, 3]
    assert found(3, 1) == [[3], [1]]
    assert len(asked) == 6


def test_powers_are_kept_up_to_a_limit_and_the_same_beyond_it() -> None:
    clients = hard_clients()
    cohorts = [lay(clients) for _ in range(3)]
    net = make(cohorts[0])
    weights = random_weights(net, len(clients), 0)
    size = 4 * cohorts[0].rows * 5 * net.features
    counted = mock.patch.object(FilterNet, "_powers", autospec=True, side_effect=FilterNet._powers)
    room = mock.patch.object(filters, "CACHED", 2 * size + size // 2)
    with mock.patch.object(filters, "_cached_bytes", WeakKeyDictionary()), room, counted as powers:
        first = [net(cohort, weights).logits for cohort in cohorts]
        assert powers.call_count == 3
        again = [net(cohort, weights).logits for cohort in cohorts]
        assert powers.call_count == 4  # those of the third cohort
        assert all(torch.equal(logits, first[0]) for logits in first + again)
        powers.reset_mock()
        cohorts.pop(0)
        gc.collect()  # the first cohort is gone, and its powers with it
        for _ in range(2):
            net(cohorts[1], weights)
        assert powers.call_count == 1


@pytest.mark.parametrize(("hidden", "groups"), [(6, 1), (6, 3), (7, 3), (8, 5), (4, 4), (2, 3)])
def test_each_unit_has_the_factors_of_its_group(hidden: int, groups: int) -> None:
    """Unit h is of group h G // H, as in the network's filters."""
    rng = torch.Generator().manual_seed(hidden)
    factor = torch.rand(2, 3, groups, generator=rng)
    expected = factor[..., [unit * groups // hidden for unit in range(hidden)]]
    assert torch.equal(unit_factors(factor, hidden).expand(2, 3, hidden), expected)
