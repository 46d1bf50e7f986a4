"""Each structure learner equals a dense one of a single client, written from the module's docstring; so do its gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, client_keys
from fedquilt.nn import latent_graph as latent_module
from fedquilt.nn import structure
from fedquilt.nn.latent_graph import bernoulli
from fedquilt.nn.layers import gcn_first
from fedquilt.nn.models import common_start
from fedquilt.nn.structure import (
    SAMPLED,
    UNLEARNED,
    Form,
    Latent,
    Learner,
    factors,
    learn,
    learner_shapes,
    narrow_factors,
    narrow_features,
    represent,
    sample,
    scaled,
    start_metric,
)
from support.clients import (
    LAYOUTS,
    PADDING,
    Largest,
    assert_near,
    dense_adjacency,
    dense_features,
    equal_clients,
    lay,
    numbers,
    random_client,
)

KINDS: tuple[Learner, ...] = tuple(kind for kind in get_args(Learner) if kind not in UNLEARNED)
FEATURES, HIDDEN, HEADS = 6, 5, 3
Weights = dict[str, Tensor]


def some_clients() -> list[Client]:
    """One node; fewer nodes than k; an isolated node; sizes far apart; one of them without edges.

    No two nodes have the same neighbours (themselves counted): any of two nodes that look alike may be chosen.
    """
    rng = np.random.default_rng(7)
    shapes = ((1, 0.0), (4, 0.5), (21, 0.12), (12, 0.0), (30, 0.3))
    clients = [
        random_client(rng, m, n, FEATURES, edges=e, filled=0.9, sparse=m % 2 == 0) for m, (n, e) in enumerate(shapes)
    ]
    path = np.array([[0, 1, 2], [1, 2, 3]])
    clients[1] = Client(1, replace(clients[1].graph, edges=path), clients[1].split)
    assert (dense_adjacency(clients[2]).sum(1) == 0).any()
    for client in clients:
        assert len(np.unique(dense_adjacency(client) + np.eye(client.graph.nodes), axis=0)) == client.graph.nodes
    return clients


def random_weights(kind: Learner, clients: int, seed: int = 0) -> Weights:
    """Other weights at every client."""
    shapes = learner_shapes(kind, FEATURES, HIDDEN, HEADS)
    return {name: 0.7 * numbers(seed + i, clients, *shape) for i, (name, shape) in enumerate(shapes.items())}


def of_client(weights: Weights, m: int) -> Weights:
    return {name: w[m].detach().double().requires_grad_() for name, w in weights.items()}


def scores(kind: Learner, z: Tensor, w: Weights) -> Tensor:
    """[n, n] by the line of the docstring, before what makes them positive."""
    u, v = z.unsqueeze(1), z.unsqueeze(0)
    if kind == "heads":
        return sum(cosine_similarity(w["left"][h] * u, w["right"][h] * v, dim=2) for h in range(HEADS)) / HEADS
    if kind == "cosine":
        return cosine_similarity(u, v, dim=2)
    if kind == "attention":
        return ((u @ w["query"]) * (v @ w["key"])).sum(2) / HIDDEN**0.5
    if kind == "gat":
        return torch.nn.LeakyReLU(0.2)((u @ w["source"] + v @ w["target"]).squeeze(2))
    if kind == "glcn":
        return ((u - v).abs() @ w["scale"]).squeeze(2)
    return (u * v).sum(2)


def reference(kind: Learner, client: Client, w: Weights, k: int) -> tuple[Tensor, Tensor]:
    """The latent graph [n, n] of one client, and which pairs were chosen."""
    a = torch.from_numpy(dense_adjacency(client))
    n = len(a)
    loops = a + torch.eye(n)
    gcn = loops / torch.outer(loops.sum(1), loops.sum(1)).sqrt()
    z = gcn @ torch.from_numpy(dense_features(client)).double() @ w["weight"] + w.get("bias", 0.0)
    score = scores(kind, z, w)
    ranked = score.detach().sort(dim=1, descending=True)
    chosen = torch.zeros(n, n, dtype=torch.bool).scatter(1, ranked.indices[:, :k], True)
    if kind == "gat":
        chosen = loops > 0
    elif n > k:  # single and double precision choose the same
        assert float((ranked.values[:, k - 1] - ranked.values[:, k]).min()) > 1e-5
    if kind in ("attention", "gat", "glcn"):
        score = torch.relu(score) if kind == "glcn" else score
        return torch.softmax(score.masked_fill(~chosen, -torch.inf), dim=1), chosen
    positive = (torch.sigmoid(score) if kind == "gaug" else torch.relu(score)) * chosen
    return positive / positive.sum(1, keepdim=True).clamp_min(1e-6), chosen


def with_given(kind: Learner, client: Client, learned: Tensor) -> Tensor:
    """What is propagated over: GAug mixes half of the mean over given neighbours in."""
    a = torch.from_numpy(dense_adjacency(client))
    return learned if kind != "gaug" else 0.5 * learned + 0.5 * a / a.sum(1, keepdim=True).clamp_min(1.0)


def dense(cohort: Cohort, latent: Latent) -> Tensor:
    """[R, R], the given graph's share not counted."""
    place = latent.links.source.long(), latent.links.target.long()
    out = torch.zeros(cohort.rows, cohort.rows, dtype=torch.float64)
    return out.index_put(place, latent.weight.detach().double(), accumulate=True)


def block(cohort: Cohort, matrix: Tensor, m: int) -> Tensor:
    own = slice(int(cohort.start[m]), int(cohort.start[m]) + cohort.sizes[m])
    return matrix[own, own]


# -- values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 4, 25])
@pytest.mark.parametrize(("rows", "features"), LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_learner_equals_its_line_of_the_docstring(kind: Learner, rows: str, features: str, k: int) -> None:
    clients = some_clients()
    cohort, weights = lay(clients, rows, features), random_weights(kind, len(clients))
    latent = learn(kind, cohort, weights, Form(k))
    found, h = dense(cohort, latent), numbers(9, cohort.rows, 3)
    mixed = latent.propagate(cohort, h)
    assert latent.given == (0.5 if kind == "gaug" else 0.0)
    inside = torch.zeros_like(found)
    for m, client in enumerate(clients):
        expected, chosen = reference(kind, client, of_client(weights, m), k)
        mine = block(cohort, found, m)
        assert_near(mine, expected.detach())
        assert not mine[~chosen].any()
        over = with_given(kind, client, expected.detach())
        assert_near(cohort.parts_of(mixed)[m], over @ cohort.parts_of(h)[m].double())
        block(cohort, inside, m).add_(mine)
    assert torch.equal(inside, found)  # nothing between clients, nothing at padding
    sums = found.sum(1)
    assert bool(((sums - 1).abs() < 1e-5).logical_or(sums == 0).all())
    if kind not in ("heads", "cosine"):
        assert_near(sums[cohort.nodes], torch.ones(len(cohort.nodes)))


def test_equation_3() -> None:
    """Few lines of NumPy, up to the factor 1 / heads; two weight vectors a head: u may choose v without v choosing u."""
    clients = some_clients()
    cohort, w = lay(clients, "compact"), random_weights("heads", len(clients))
    z = gcn_first(cohort, w["weight"], w["bias"])
    phi = scaled(cohort, z, w["left"]) @ scaled(cohort, z, w["right"]).T
    for m, n in enumerate(cohort.sizes):
        one, two = w["left"][m].double().numpy(), w["right"][m].double().numpy()
        own, found = cohort.parts_of(z)[m].double().numpy(), block(cohort, phi, m).double().numpy()
        for u, v in np.ndindex(n, n):
            total = 0.0
            for h in range(HEADS):
                a, b = one[h] * own[u], two[h] * own[v]
                total += (a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum())
            assert found[u, v] == pytest.approx(total, abs=1e-5)
        assert n == 1 or np.abs(found - found.T).max() > 0.1
        assert np.abs(found).max() <= HEADS + 1e-5


def test_gat_looks_at_given_neighbours_and_nothing_else() -> None:
    clients = some_clients()
    cohort = lay(clients)
    latent = learn("gat", cohort, random_weights("gat", len(clients)), Form(1))
    found = dense(cohort, latent)
    for m, client in enumerate(clients):
        given = dense_adjacency(client) + np.eye(client.graph.nodes)
        assert np.array_equal((block(cohort, found, m) > 0).numpy(), given > 0)


def test_the_metric_starts_as_a_cosine() -> None:
    for kind in KINDS:
        weights = common_start(learner_shapes(kind, FEATURES, 64, 4), 0, 3, torch.device("cpu"))
        before = {name: w.clone() for name, w in weights.items()}
        start_metric(kind, weights)
        for name, w in weights.items():
            expected = before[name] + (1.0 if kind == "heads" and name in ("left", "right") else 0.0)
            assert torch.equal(w, expected)
        if kind == "heads":
            assert float(weights["left"].min()) > 0.5
            assert float(weights["left"].max()) < 1.5
            assert not torch.equal(weights["left"], weights["right"])
    clients = some_clients()
    cohort, plain = lay(clients), random_weights("cosine", len(clients))
    zeros = torch.zeros(len(clients), HEADS, HIDDEN)
    heads = plain | {"left": zeros.clone(), "right": zeros.clone()}
    start_metric("heads", heads)
    assert_near(
        dense(cohort, learn("heads", cohort, heads, Form(4))), dense(cohort, learn("cosine", cohort, plain, Form(4)))
    )


# -- gradients ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [4, 25])
@pytest.mark.parametrize(("rows", "features"), LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_dense_ones(kind: Learner, rows: str, features: str, k: int) -> None:
    """Of what is propagated and of the weights themselves, as FedHERO's penalty sees them."""
    clients = some_clients()
    cohort = lay(clients, rows, features)
    weights = {name: w.requires_grad_() for name, w in random_weights(kind, len(clients)).items()}
    h, pull = numbers(9, cohort.rows, 3).requires_grad_(), numbers(10, cohort.rows, 3)
    latent = learn(kind, cohort, weights, Form(k))
    ((latent.propagate(cohort, h) * pull).sum() + 2.0 * latent.weight.square().sum()).backward()
    for m, client in enumerate(clients):
        own, mine = of_client(weights, m), cohort.parts_of(h)[m].detach().double().requires_grad_()
        a, _ = reference(kind, client, own, k)
        propagated = with_given(kind, client, a) @ mine
        ((propagated * cohort.parts_of(pull)[m]).sum() + 2.0 * a.square().sum()).backward()
        for name, w in own.items():
            assert_near(weights[name].grad[m], w.grad, 1e-4)
        assert_near(cohort.parts_of(h.grad)[m], mine.grad)


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in KINDS for name in learner_shapes(kind, FEATURES, HIDDEN, HEADS)],
)
def test_gradient_reaches_every_weight(kind: Learner, name: str, rows: str) -> None:
    """Each number of each client that has something to choose from, from where training starts."""
    rng = np.random.default_rng(0)
    clients = [random_client(rng, m, n, FEATURES, edges=0.2, filled=1.0) for m, n in enumerate((30, 22))]
    cohort = lay(clients, rows)
    weights = common_start(learner_shapes(kind, FEATURES, HIDDEN, HEADS), 0, len(clients), cohort.device)
    start_metric(kind, weights)
    weights = {n: w.requires_grad_() for n, w in weights.items()}
    latent = learn(kind, cohort, weights, Form(6))
    (latent.propagate(cohort, numbers(1, cohort.rows, 3)) * numbers(2, cohort.rows, 3)).sum().backward()
    grad = weights[name].grad
    assert torch.isfinite(grad).all()
    assert float(grad.abs().min()) > 1e-5


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("kind", KINDS)
def test_empty_nodes_give_finite_gradients(kind: Learner, rows: str) -> None:
    """Isolated nodes without features, alike in all; a client of nothing else; one node."""
    rng = np.random.default_rng(3)
    clients = [random_client(rng, m, n, FEATURES, edges=e) for m, (n, e) in enumerate(((14, 0.1), (9, 0.0), (1, 0.0)))]
    for client, empty in zip(clients, (slice(0, 14, 3), slice(None), slice(None)), strict=True):
        client.graph.x[empty] = 0.0
    assert any(
        not client.graph.x[u].any() and not dense_adjacency(client)[u].any()
        for client in clients[:1]
        for u in range(client.graph.nodes)
    )
    cohort = lay(clients, rows)
    weights = common_start(learner_shapes(kind, FEATURES, HIDDEN, HEADS), 0, len(clients), cohort.device)
    start_metric(kind, weights)
    weights = {n: w.requires_grad_() for n, w in weights.items()}
    assert kind == "glcn" or not weights["bias"].any()
    h = numbers(1, cohort.rows, 3).requires_grad_()
    latent = learn(kind, cohort, weights, Form(5))
    (latent.propagate(cohort, h).square().sum() + latent.weight.square().sum()).backward()
    assert torch.isfinite(latent.weight).all()
    for tensor in (h, *weights.values()):
        assert torch.isfinite(tensor.grad).all()
        assert float(tensor.grad.abs().max()) < 1e3


# -- memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_no_matrix_of_all_pairs_is_made(kind: Learner) -> None:
    """Forward and backward: at most pairs x width numbers, which n k is far less than n^2."""
    nodes, k = 500, 3
    cohort = lay(equal_clients(1, nodes, FEATURES))
    cohort.members[0].graph.x[:] = numbers(0, nodes, FEATURES).numpy()
    weights = {n: w.requires_grad_() for n, w in random_weights(kind, 1).items()}
    h = numbers(1, nodes, 4)
    assert cohort.smoothed.dense is not None
    with mock.patch.object(latent_module, "CHUNK", 10 * nodes), Largest() as largest:
        latent = learn(kind, cohort, weights, Form(k))
        (latent.propagate(cohort, h).square().sum() + latent.weight.square().sum()).backward()
    assert nodes < largest.numbers <= nodes * max(10, 2 * HIDDEN * k)


# -- drawn graphs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("kind", SAMPLED)
def test_a_sample_is_drawn_by_the_scores_and_weighs_all_alike(kind: Learner, rows: str) -> None:
    clients = some_clients()
    cohort, weights = lay(clients, rows), random_weights(kind, len(clients))
    draws = Draws(client_keys(0, cohort), 4)
    latent = sample(kind, cohort, {n: w.requires_grad_() for n, w in weights.items()}, Form(6), draws)
    assert not latent.weight.requires_grad
    assert latent.given == 0.0
    with torch.no_grad():
        left, right = factors(kind, cohort, gcn_first(cohort, weights["weight"], weights["bias"]), weights)
    drawn = bernoulli(cohort, left, right, 6, draws)
    assert torch.equal(latent.links.source, drawn.links.source)
    assert torch.equal(latent.links.target, drawn.links.target)
    found = dense(cohort, latent)
    for m, client in enumerate(clients):
        w = of_client(weights, m)
        a = dense_adjacency(client) + np.eye(client.graph.nodes)
        a = torch.from_numpy(a / np.sqrt(np.outer(a.sum(1), a.sum(1))))
        score = scores(kind, a @ torch.from_numpy(dense_features(client)).double() @ w["weight"] + w["bias"], w)
        mine = block(cohort, found, m)
        assert not mine[score < -1e-6].any()
        there = (mine > 0).double()
        assert_near(mine, there / there.sum(1, keepdim=True).clamp_min(1.0))
    degree = (found > 0).sum(1).double()
    assert 4 < float(degree[cohort.client == 4].sum() / cohort.sizes[4]) < 8
    assert not found[:, cohort.client == 4][cohort.client != 4].any()


# -- graphs without a learner ------------------------------------------------------------------------


@pytest.mark.parametrize("rows", PADDING)
def test_nearest_features(rows: str) -> None:
    """The k highest cosines of features, their weights proportional to them."""
    rng = np.random.default_rng(5)
    clients = [random_client(rng, m, n, FEATURES, filled=0.9, sparse=m == 1) for m, n in enumerate((12, 7, 3))]
    cohort = lay(clients, rows)
    found = dense(cohort, learn("knn", cohort, {}, Form(4)))
    for m, client in enumerate(clients):
        x = torch.from_numpy(dense_features(client)).double()
        phi = cosine_similarity(x.unsqueeze(1), x.unsqueeze(0), dim=2)
        kept = torch.zeros_like(phi).scatter(1, phi.sort(dim=1, descending=True).indices[:, :4], 1.0)
        expected = torch.relu(phi) * kept
        assert_near(block(cohort, found, m), expected / expected.sum(1, keepdim=True))


@pytest.mark.parametrize("rows", PADDING)
def test_random_neighbours_are_the_clients_own_and_the_same_in_every_cohort(rows: str) -> None:
    clients = some_clients()
    cohort = lay(clients, rows)
    latent = learn("random", cohort, {}, Form(5), Draws(client_keys(2, cohort), 0))
    found = dense(cohort, latent)
    assert_near(found[cohort.nodes].sum(1), torch.ones(len(cohort.nodes)))
    inside = torch.zeros_like(found)
    for m, client in enumerate(clients):
        one = Cohort([client])
        alone = dense(one, learn("random", one, {}, Form(5), Draws(client_keys(2, one), 0)))
        assert torch.equal(block(cohort, found, m), alone)
        block(cohort, inside, m).add_(alone)
    assert torch.equal(inside, found)
    other = Cohort(clients)
    assert not torch.equal(dense(other, learn("random", other, {}, Form(5), Draws(client_keys(3, other), 0))), found)


def test_a_node_as_its_own_neighbour() -> None:
    cohort = lay(some_clients())
    h = numbers(0, cohort.rows, 3)
    assert_near(learn("self", cohort, {}, Form(4)).propagate(cohort, h), h)
    assert_near(learn("self", cohort, {}, Form(4, symmetric=True)).propagate(cohort, h), h)


# -- a GCN over the latent graph ---------------------------------------------------------------------


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("kind", KINDS)
def test_a_gcn_over_the_latent_graph(kind: Learner, rows: str) -> None:
    """D^-1/2 (S + I) D^-1/2 h with S = k (A~ + A~^T) / 2, and GAug's half of the given graph beside it."""
    clients = some_clients()
    cohort, weights = lay(clients, rows), random_weights(kind, len(clients))
    latent = learn(kind, cohort, weights, Form(4, symmetric=True))
    plain, h = dense(cohort, latent), numbers(9, cohort.rows, 3)
    mixed = latent.propagate(cohort, h)
    for m, client in enumerate(clients):
        a = block(cohort, plain, m)
        s = 4 * (a + a.T) / 2 + torch.eye(len(a))
        s = s / torch.outer(s.sum(1), s.sum(1)).sqrt()
        assert_near(cohort.parts_of(mixed)[m], with_given(kind, client, s) @ cohort.parts_of(h)[m].double())


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("kind", KINDS)
def test_what_training_nodes_receive(kind: Learner, rows: str, symmetric: bool) -> None:
    """The rows of the whole, with the same gradients."""
    clients = some_clients()
    cohort = lay(clients, rows)
    found = []
    for training in (True, False):
        w = {name: tensor.requires_grad_() for name, tensor in random_weights(kind, len(clients)).items()}
        h = numbers(9, cohort.rows, 3).requires_grad_()
        latent = learn(kind, cohort, w, Form(4, symmetric=symmetric))
        index = cohort.training.index
        out = latent.propagate_training(cohort, h) if training else latent.propagate(cohort, h)[index]
        out = out[cohort.training.real]
        slope = torch.autograd.grad((out * numbers(8, *out.shape)).sum(), [h, *w.values()])
        found.append([out.detach(), *slope])
    for one, two in zip(*found, strict=True):
        assert_near(one, two)


def test_equal_weights_are_those_of_equation_4() -> None:
    clients = some_clients()
    cohort, weights = lay(clients), random_weights("heads", len(clients))
    latent = learn("heads", cohort, weights, Form(4, binary=True))
    scored = learn("heads", cohort, weights, Form(4))
    assert torch.equal(latent.links.target, scored.links.target)
    for m, n in enumerate(cohort.sizes):
        mine = block(cohort, dense(cohort, latent), m)
        assert_near(mine[mine > 0], torch.full((n * min(4, n),), 1 / min(4, n)))


@pytest.mark.parametrize("rows", ["padded", "compact"])
def test_few_features_have_narrow_factors_with_the_same_products_and_gradients(rows: str) -> None:
    """Of eq. 3 in F + 1 columns a head, where the learner's width is more than twice that; a client has a row of zeros."""
    rng = np.random.default_rng(0)
    clients = [random_client(rng, m, n, 3, edges=2 * n, filled=0.9) for m, n in enumerate((12, 7))]
    cohort, form = lay(clients, rows), Form(k=4)
    shapes = learner_shapes("heads", 3, 8, HEADS)
    found = []
    for narrow in (True, False):
        w = {name: (0.7 * numbers(i, 2, *shape)).requires_grad_() for i, (name, shape) in enumerate(shapes.items())}
        z = represent(cohort, w, form)
        features = narrow_features("heads", cohort, w, form)
        assert features is not None
        left, right = narrow_factors(cohort, features, z, w) if narrow else factors("heads", cohort, z, w)
        assert left.shape == right.shape == (cohort.rows, HEADS * (4 if narrow else 8))
        with mock.patch.object(structure, "narrow_features", return_value=features if narrow else None):
            latent = learn("heads", cohort, w, form)
        slope = torch.autograd.grad((latent.weight * numbers(9, len(latent.weight))).sum(), list(w.values()))
        alike = cohort.client.unsqueeze(1) == cohort.client
        found.append([(left @ right.T).detach() * alike, dense(cohort, latent), *slope])
    for one, two in zip(*found, strict=True):
        assert_near(one, two, 1e-4)
    assert narrow_features("heads", cohort, w, Form(k=4, activation=True)) is None
    assert narrow_features("cosine", cohort, w, form) is None
