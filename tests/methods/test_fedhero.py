"""FedHERO's formulas, each against a dense client on its own, written from the paper; and what crosses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, client_keys
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import declared
from fedquilt.methods.base_adam import KEYS
from fedquilt.methods.fedhero import HIDDEN_LAYER, NODES, OWN_LAYER, FedHERO, distances, sketch
from fedquilt.methods.settings import build_settings
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import linear
from fedquilt.nn.structure import Form, Latent, learn, sample
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import LAYOUTS, PADDING, assert_near, dense_adjacency, dense_features, lay, numbers, random_client
from support.federations import Wiretap, make_method, make_task, make_training, ragged_clients, tapped_run

LEARNERS = ("heads", "cosine", "attention", "gat", "glcn", "gaug")
LEARNER = {"learner.weight", "learner.bias", "learner.left", "learner.right"}
PROJECTION = {f"projection.{name}" for name in ("weight", "bias", "second.weight", "second.bias")}
GLOBAL = {f"global{layer}.{kind}" for layer in (1, 2) for kind in ("weight", "bias")}
LOCAL = {f"local{layer}.{kind}" for layer in (1, 2) for kind in ("weight", "bias")}
CLASSIFIER = {"classifier.raw", "classifier.weight", "classifier.bias"}
K = 4
State = dict[str, Tensor]


def make(clients: list[Client] | None = None, **settings: Any) -> FedHERO:
    clients = clients or ragged_clients()
    small = {"learner_hidden": 6, "heads": 3, "k": K}
    method = make_method("fedhero", clients, make_task(clients, epochs=2), **(small | settings))
    assert isinstance(method, FedHERO)
    return method


def tapped(
    rounds: int = 3, participation: float = 1.0, clients: list[Client] | None = None, **settings: Any
) -> tuple[Training, Wiretap]:
    clients = clients or ragged_clients()
    return tapped_run(make(clients, **settings), clients, rounds, participation)


def scrambled(method: FedHERO, cohort: Cohort) -> State:
    """Other weights at every client."""
    state = method.start(cohort)
    for i, name in enumerate(n for n in state if n.startswith("model.")):
        state[name] += 0.3 * numbers(i, *state[name].shape)
    return state


def gradients(method: FedHERO, state: State, cohort: Cohort, step: int = 0) -> tuple[State, Tensor]:
    """By the names in the model, and each client's loss."""
    dropout = Dropout(method.settings.dropout, state[KEYS], step)
    grads, each = method.gradients(dict(state), cohort, dropout, {})
    return {name.removeprefix("model."): g for name, g in grads.items()}, each


# -- one client on its own, dense and in double precision ----------------------------------------------


def gcn_operator(client: Client) -> Tensor:
    a = torch.from_numpy(dense_adjacency(client)) + torch.eye(client.graph.nodes)
    return a / torch.outer(a.sum(1), a.sum(1)).sqrt()


def features(client: Client) -> Tensor:
    return torch.from_numpy(dense_features(client)).double()


def plain_latent(client: Client, w: State, k: int, x: Tensor | None = None, activation: bool = False) -> Tensor:
    """Eq. 3 and 4, the kept scores being the weights: [n, n]."""
    x = features(client) if x is None else x
    z = gcn_operator(client) @ x @ w["learner.weight"] + w["learner.bias"]
    z = torch.relu(z) if activation else z
    phi = torch.stack(
        [
            cosine_similarity((one * z).unsqueeze(1), (two * z).unsqueeze(0), dim=2)
            for one, two in zip(w["learner.left"], w["learner.right"], strict=True)
        ]
    ).mean(0)
    ranked = phi.detach().sort(dim=1, descending=True)
    if k < len(phi):  # single and double precision choose the same
        assert float((ranked.values[:, k - 1] - ranked.values[:, k]).min()) > 1e-6
    kept = torch.zeros_like(phi).scatter(1, ranked.indices[:, :k], 1.0)
    weight = torch.relu(phi) * kept
    return weight / weight.sum(1, keepdim=True).clamp_min(1e-6)


def plain_projection(x: Tensor, w: State) -> Tensor:
    """Z^0."""
    z = torch.relu(x @ w["projection.weight"] + w["projection.bias"])
    if "projection.second.weight" in w:
        z = torch.relu(z @ w["projection.second.weight"] + w["projection.second.bias"])
    return z


def plain_logits(
    client: Client, w: State, latent: Tensor, alpha: float, channels: int, x: Tensor | None = None
) -> Tensor:
    """Eq. 5 and 6."""
    x, a = features(client) if x is None else x, gcn_operator(client)
    z = plain_projection(x, w)
    seen = [x, z]
    for layer in (1, 2):
        if channels == 2:
            e = a @ z @ w[f"local{layer}.weight"] + w[f"local{layer}.bias"]
            h = latent @ z @ w[f"global{layer}.weight"] + w[f"global{layer}.bias"]
            z = torch.relu(alpha * e + (1 - alpha) * h)
        else:
            both = alpha * a + (1 - alpha) * latent
            z = torch.relu(both @ z @ w[f"global{layer}.weight"] + w[f"global{layer}.bias"])
        seen.append(z)
    classifier = torch.cat([w["classifier.raw"], w["classifier.weight"]])
    return torch.cat(seen, dim=1) @ classifier + w["classifier.bias"]


def relative_distances(client: Client) -> np.ndarray:
    """|x_u - x_v|^2 over its mean over all pairs: [n, n]."""
    x = dense_features(client).astype(float)
    square = np.array([[((one - two) ** 2).sum() for two in x] for one in x])
    return square / max(square.mean(), 1e-12)


def plain_penalty(client: Client, latent: Tensor, smoothness: float, concentration: float) -> Tensor:
    """Eq. 7, the sums over u being means."""
    d = torch.from_numpy(relative_distances(client))
    return (smoothness * latent * d + concentration * latent.square()).sum() / len(latent)


def own_weights(weights: State, m: int) -> State:
    return {name: w[m].detach().double().requires_grad_() for name, w in weights.items()}


def as_dense(cohort: Cohort, latent: Latent, m: int) -> Tensor:
    """A client's latent graph, the share of the given one included: [n, n]."""
    place = latent.links.source.long(), latent.links.target.long()
    whole = torch.zeros(cohort.rows, cohort.rows, dtype=torch.float64)
    whole = whole.index_put(place, latent.weight.detach().double(), accumulate=True)
    own = slice(int(cohort.start[m]), int(cohort.start[m]) + cohort.sizes[m])
    a = torch.from_numpy(dense_adjacency(cohort.members[m]))
    given = a / a.sum(1, keepdim=True).clamp_min(1.0)
    return (1 - latent.given) * whole[own, own] + latent.given * given


# -- the model ---------------------------------------------------------------------------------------


def test_the_models_weights() -> None:
    names = PROJECTION | LEARNER | GLOBAL | CLASSIFIER
    assert set(make().shapes()) == names | LOCAL
    assert set(make(channels=1).shapes()) == names
    shapes = make(hidden=7, learner_hidden=5, heads=2).shapes()
    assert shapes["learner.left"] == shapes["learner.right"] == (2, 5)
    assert (shapes["classifier.raw"], shapes["classifier.weight"]) == ((10, 3), (21, 3))
    cohort = Cohort(ragged_clients())
    start = make().start(cohort)
    for side in ("model.learner.left", "model.learner.right"):  # around a plain cosine
        assert 0.7 < float(start[side].mean()) < 1.3


@pytest.mark.parametrize("k", [2, K, 20])
@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.7])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("rows", "products"), LAYOUTS)
def test_logits_equal_equations_3_to_6(rows: str, products: str, channels: int, alpha: float, k: int) -> None:
    clients = ragged_clients()
    cohort, method = lay(clients, rows, products), make(clients, channels=channels, alpha=alpha, k=k)
    personal = method.personal(scrambled(method, cohort))
    logits = method.logits(personal, cohort)
    assert logits.shape == (cohort.rows, 3)
    for m, client in enumerate(clients):
        w = own_weights(personal, m)
        with torch.no_grad():
            expected = plain_logits(client, w, plain_latent(client, w, k), alpha, channels)
        assert_near(cohort.parts_of(logits)[m], expected)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learners_graph_is_the_latent_graph_of_equation_5(learner: str, channels: int) -> None:
    clients = ragged_clients()
    cohort, method = Cohort(clients), make(clients, learner=learner, channels=channels)
    personal = method.personal(scrambled(method, cohort))
    logits = method.logits(personal, cohort)
    weights = {n.removeprefix("learner."): w for n, w in personal.items() if n.startswith("learner.")}
    latent = learn(learner, cohort, weights, Form(K))
    for m, client in enumerate(clients):
        with torch.no_grad():
            expected = plain_logits(client, own_weights(personal, m), as_dense(cohort, latent, m), 0.2, channels)
        assert_near(cohort.parts_of(logits)[m], expected)


@pytest.mark.parametrize("learner", ["heads", "cosine"])
def test_bernoulli_graphs_are_drawn_at_inference_only(learner: str) -> None:
    clients = ragged_clients()
    cohort = Cohort(clients)
    best, drawn = (make(clients, latent=kind, learner=learner) for kind in ("top-k", "bernoulli"))
    state = scrambled(best, cohort)
    personal = best.personal(state)
    weights = {n.removeprefix("learner."): w for n, w in personal.items() if n.startswith("learner.")}
    latent = sample(learner, cohort, weights, Form(K), Draws(client_keys(3, cohort), 0))
    logits = drawn.logits(personal, cohort)
    for m, client in enumerate(clients):
        with torch.no_grad():
            expected = plain_logits(client, own_weights(personal, m), as_dense(cohort, latent, m), 0.2, 2)
        assert_near(cohort.parts_of(logits)[m], expected)
    assert torch.equal(logits, drawn.logits(personal, cohort))  # the same every time
    assert not torch.allclose(logits, best.logits(personal, cohort))
    for one, two in zip(*(gradients(method, state, cohort)[0].values() for method in (best, drawn)), strict=True):
        assert torch.equal(one, two)


def test_alpha_weighs_the_given_graph() -> None:
    """At 0 the given graph and its channel do not matter; close to 1 the latent graph does not."""
    clients = ragged_clients()
    cohort = Cohort(clients)
    empty = np.zeros((2, 0), dtype=np.int64)
    for alpha, given, other in ((0.0, False, True), (0.999, True, False), (0.5, True, True)):
        method = make(clients, alpha=alpha)
        state = scrambled(method, cohort)
        personal = method.personal(state)
        logits = method.logits(personal, cohort)
        for names, matters in ((LOCAL, given), (GLOBAL, other)):
            changed = personal | {n: personal[n] + 1.0 for n in names}
            moved = float((method.logits(changed, cohort) - logits).abs().max())
            assert (moved > 0.1) == matters
        grads, _ = gradients(method, state, cohort)
        for name in LOCAL:
            assert bool(grads[name].any()) == given
    # The learner's convolution reads the given graph too; with weights of zero it does not.
    method = make(clients, alpha=0.0)
    personal = method.personal(scrambled(method, cohort))
    bare = Cohort([Client(c.id, replace(c.graph, edges=empty), c.split) for c in clients])
    silent = personal | {"learner.weight": torch.zeros_like(personal["learner.weight"])}
    silent["learner.bias"] = torch.ones_like(silent["learner.bias"])
    assert not torch.allclose(method.logits(personal, cohort), method.logits(personal, bare), atol=1e-3)
    assert torch.equal(method.logits(silent, cohort), method.logits(silent, bare))


def test_what_is_refused() -> None:
    clients = ragged_clients()
    with pytest.raises(FedquiltError, match=r"The setting alpha=1\.0 of method 'fedhero' is not possible"):
        build_settings(FedHERO, make_task(clients), {"alpha": 1.0})
    for setting, value in (("channels", 3), ("share", "some"), ("learner", "rbf"), ("own_dropout", 1.0), ("k", 1)):
        with pytest.raises(FedquiltError, match=f"The setting {setting}={value!r} of method 'fedhero' is not possible"):
            build_settings(FedHERO, make_task(clients), {setting: value})
    for learner in ("attention", "gat", "glcn", "gaug"):
        with pytest.raises(FedquiltError, match=f"learner={learner} .* use learner=heads or cosine"):
            make(clients, learner=learner, latent="bernoulli")
        make(clients, learner=learner)


def test_what_is_sent_is_what_is_shared() -> None:
    clients = ragged_clients()
    for share in ("global", "gcn", "all", "none"):
        method = make(clients, share=share)
        uploaded = method.local_update(method.start(cohort := Cohort(clients)), cohort, {}, 0).upload
        names = [f"model.{name}" for name in method.shapes()] + ["nodes"]
        assert {name for name in names if method.sends(name)} == set(uploaded)
    assert not make(clients).sends("embedding")


# -- the objective -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize(("smoothness", "concentration"), [(1.0, 0.0), (0.0, 1.0), (0.3, 0.2)])
def test_the_penalty_equals_equation_7(smoothness: float, concentration: float, rows: str) -> None:
    """Pair by pair, a mean over nodes; distances relative to the client's mean over all pairs."""
    clients = ragged_clients((25, 14, 4, 9, 18), sparse=True)
    cohort = lay(clients, rows)
    method = make(clients, smoothness=smoothness, concentration=concentration)
    weights = method.weights(scrambled(method, cohort))
    latent = learn("heads", cohort, {n.removeprefix("learner."): weights[n] for n in LEARNER}, Form(K))
    expected = 0.0
    pairs = zip(latent.links.source.tolist(), latent.links.target.tolist(), latent.weight.tolist(), strict=True)
    apart = [relative_distances(client) for client in clients]
    for u, v, a in pairs:
        m = int(cohort.client[u])
        d = apart[m][u - cohort.start[m], v - cohort.start[m]] if a else 0.0
        expected += (smoothness * a * d + concentration * a**2) / cohort.sizes[m]
    assert float(method.penalty(cohort, latent)) == pytest.approx(expected, rel=1e-4)


def test_the_penalty_is_smallest_for_like_and_evenly_spread_neighbours() -> None:
    cohort = Cohort(ragged_clients())
    smooth, spread = make(smoothness=1.0, concentration=0.0), make(smoothness=0.0, concentration=1.0)
    weights = smooth.weights(scrambled(smooth, cohort))
    latent = learn("heads", cohort, {n.removeprefix("learner."): weights[n] for n in LEARNER}, Form(K))
    itself = replace(latent, links=type(latent.links)(latent.links.source.long(), latent.links.source, cohort.rows))
    assert float(smooth.penalty(cohort, itself)) == pytest.approx(0.0, abs=1e-5)
    assert float(smooth.penalty(cohort, latent)) > 0.1
    even = replace(latent, weight=(latent.weight > 0).float() / K)
    assert float(spread.penalty(cohort, even)) < float(spread.penalty(cohort, latent))


def wide_clients(width: int, sizes: tuple[int, ...] = (40, 25, 33)) -> list[Client]:
    rng = np.random.default_rng(width)
    return [random_client(rng, m, n, width, filled=0.3, sparse=m == 1) for m, n in enumerate(sizes)]


def all_pairs(cohort: Cohort) -> list[np.ndarray]:
    """What `distances` says of all pairs of nodes of each client: [n, n]."""
    out = []
    for client in cohort.members:
        one = Cohort([client])
        n = client.graph.nodes
        every = learn("cosine", one, {"weight": numbers(0, 1, one.features, 3), "bias": torch.zeros(1, 3)}, Form(n))
        matrix = np.zeros((n, n))
        matrix[every.links.source.numpy(), every.links.target.numpy()] = distances(one, every).numpy()
        out.append(matrix)
    return out


@pytest.mark.parametrize("width", [3, 64])
def test_distances_of_few_features_are_exact(width: int) -> None:
    cohort = Cohort(wide_clients(width))
    for client, found in zip(cohort.members, all_pairs(cohort), strict=True):
        assert_near(torch.from_numpy(found), torch.from_numpy(relative_distances(client)))
        assert found.mean() == pytest.approx(1.0, abs=1e-4)


def test_distances_of_many_features_are_kept_on_average() -> None:
    """A projection to 64 numbers: a square has a relative deviation of (2 / 64)^1/2 = 0.18."""
    cohort = Cohort(wide_clients(500))
    assert sketch(cohort).shape == (cohort.rows, 64)
    for client, found in zip(cohort.members, all_pairs(cohort), strict=True):
        exact = relative_distances(client)
        there = exact > 0
        ratio = found[there] / exact[there]
        assert found.mean() == pytest.approx(1.0, abs=1e-4)
        assert ratio.mean() == pytest.approx(1.0, abs=0.05)
        assert 0.05 < ratio.std() < 0.25
        assert np.abs(found[~there]).max() < 1e-4


@pytest.mark.parametrize("width", [10, 100])
@pytest.mark.parametrize("rows", PADDING)
def test_distances_belong_to_the_client(rows: str, width: int) -> None:
    """The projection is the same for everyone, whoever else is there, and other scales of features change nothing."""
    clients = wide_clients(width)
    cohort = lay(clients, rows)
    found = sketch(cohort)
    for m, client in enumerate(clients):
        scale = 5.0 if m == 1 else 1.0
        alone = sketch(Cohort([Client(client.id, replace(client.graph, x=client.graph.x * scale), client.split)]))
        assert_near(cohort.parts_of(found)[m], alone)


def test_one_node_or_many_alike_are_no_distance_apart() -> None:
    clients = [random_client(np.random.default_rng(0), m, n) for m, n in enumerate((1, 5))]
    clients[1].graph.x[:] = clients[1].graph.x[0]
    for found in all_pairs(Cohort(clients)):
        assert np.isfinite(found).all()
        assert np.abs(found).max() < 1e-5


@pytest.mark.parametrize(("smoothness", "concentration"), [(0.0, 0.0), (2.0, 0.0), (0.0, 2.0), (0.1, 0.1)])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("rows", "products"), LAYOUTS)
def test_gradients_equal_those_of_a_dense_client(
    rows: str, products: str, channels: int, smoothness: float, concentration: float
) -> None:
    """Eq. 8: cross-entropy of the training nodes and eq. 7, differentiated down to the structure learner."""
    clients = ragged_clients()
    cohort = lay(clients, rows, products)
    settings = {"smoothness": smoothness, "concentration": concentration}
    method = make(clients, channels=channels, dropout=0.0, **settings)
    state = scrambled(method, cohort)
    grads, each = gradients(method, state, cohort)
    assert set(grads) == set(method.shapes())
    for m, client in enumerate(clients):
        w = own_weights(method.weights(state), m)
        latent = plain_latent(client, w, K)
        nodes = client.training_nodes
        loss = cross_entropy(
            plain_logits(client, w, latent, 0.2, channels)[nodes], torch.from_numpy(client.graph.y[nodes])
        )
        assert float(each[m]) == pytest.approx(loss.item(), rel=1e-4)
        (loss + plain_penalty(client, latent, **settings)).backward()
        for name, one in w.items():
            assert_near(grads[name][m], one.grad, 1e-4)
            assert float(one.grad.abs().max()) > 1e-4


def test_a_local_update_is_adam_on_these_gradients() -> None:
    """Two epochs of a dense client with torch.optim.Adam; where a gradient is all but zero, Adam's step is rounding."""
    clients = ragged_clients()
    cohort, method = Cohort(clients), make(clients, dropout=0.0, lr=0.01)
    state = scrambled(method, cohort)
    before = {name: w.clone() for name, w in method.weights(state).items()}
    method.local_update(state, cohort, {}, 0)
    for m, client in enumerate(clients):
        w = own_weights(before, m)
        optimiser = torch.optim.Adam(w.values(), lr=0.01)
        firm = {name: torch.ones_like(one, dtype=torch.bool) for name, one in w.items()}
        for _ in range(2):
            optimiser.zero_grad()
            latent, nodes = plain_latent(client, w, K), client.training_nodes
            logits = plain_logits(client, w, latent, 0.2, 2)[nodes]
            loss = cross_entropy(logits, torch.from_numpy(client.graph.y[nodes]))
            (loss + plain_penalty(client, latent, 0.1, 0.1)).backward()
            for name, one in w.items():
                firm[name] &= (one.grad.abs() > 1e-3) | (one.grad == 0)
            optimiser.step()
        for name, one in w.items():
            assert_near(state["model." + name][m][firm[name]], one.detach()[firm[name]], 1e-4)
            assert float((one.detach() - before[name][m]).abs().max()) > 0.01


@pytest.mark.parametrize("learner", LEARNERS)
def test_gradient_reaches_the_learner_from_each_term(learner: str) -> None:
    """Cross-entropy alone, and either penalty alone."""
    clients = ragged_clients()
    cohort = Cohort(clients)
    found = []
    for terms in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)):
        # With two layers some client's Z^0 is all zeros.
        terms_of = {"smoothness": terms[0], "concentration": terms[1]}
        method = make(clients, learner=learner, dropout=0.0, projection_layers=1, **terms_of)
        grads, _ = gradients(method, scrambled(method, cohort), cohort)
        found.append(grads)
        assert all(torch.isfinite(g).all() for g in grads.values())
    metric = [n for n in found[0] if n.startswith("learner.") and n != "learner.bias"]
    for name in metric:
        largest = found[0][name].flatten(1).abs().amax(1)
        assert float(largest.max()) > 1e-3
        # Attention does not see the source where all a node's scores have the same sign.
        assert learner == "gat" or float(largest.min()) > 1e-6
        for other in found[1:]:
            assert float((other[name] - found[0][name]).abs().max()) > 1e-5
    for name in set(found[0]) - {n for n in found[0] if n.startswith("learner.")}:
        assert_near(found[1][name], found[0][name], 1e-6)


# -- what the paper leaves open --------------------------------------------------------------------------


def plain_gcn(latent: Tensor, k: int) -> Tensor:
    """D^-1/2 (S + I) D^-1/2 with S = k (A~ + A~^T) / 2: [n, n]."""
    s = k * (latent + latent.T) / 2 + torch.eye(len(latent))
    return s / torch.outer(s.sum(1), s.sum(1)).sqrt()


OPEN: tuple[dict[str, Any], ...] = (
    {"projection_layers": 1},
    {"row_normalise": True},
    {"learner_activation": True},
    {"latent_operator": "gcn"},
    {"latent_weights": "equal"},
    {"latent_weights": "equal", "latent_operator": "gcn", "row_normalise": True, "projection_layers": 1},
)


@pytest.mark.parametrize("settings", OPEN, ids=str)
@pytest.mark.parametrize(("rows", "products"), LAYOUTS)
def test_what_the_paper_leaves_open_equals_a_dense_client(rows: str, products: str, settings: dict[str, Any]) -> None:
    """Logits and gradients, with the smoothness terms, of each setting."""
    clients = ragged_clients()
    cohort, method = lay(clients, rows, products), make(clients, dropout=0.0, **settings)
    state = scrambled(method, cohort)
    if "learner_activation" in settings:
        state["model.learner.bias"] += 1.0  # else nodes are alike, all zeros
    logits = method.logits(method.personal(state), cohort)
    grads, _ = gradients(method, state, cohort)
    assert set(grads) == set(method.shapes())
    for m, client in enumerate(clients):
        w = own_weights(method.weights(state), m)
        x = features(client)
        if "row_normalise" in settings:
            x = x / x.abs().sum(1, keepdim=True).clamp_min(1e-12)
        latent = plain_latent(client, w, K, x, "learner_activation" in settings)
        if "latent_weights" in settings:
            kept = chosen_pairs(latent, client, method, state, m)
            latent = kept / kept.sum(1, keepdim=True) + (latent - latent.detach())
        over = plain_gcn(latent, K) if "latent_operator" in settings else latent
        expected = plain_logits(client, w, over, 0.2, 2, x)
        assert_near(cohort.parts_of(logits)[m], expected.detach())
        nodes = client.training_nodes
        loss = cross_entropy(expected[nodes], torch.from_numpy(client.graph.y[nodes]))
        (loss + plain_penalty(client, latent, 0.1, 0.1)).backward()
        for name, one in w.items():
            assert_near(grads[name][m], one.grad, 1e-4)


def chosen_pairs(latent: Tensor, client: Client, method: FedHERO, state: State, m: int) -> Tensor:
    """Which pairs are latent neighbours, those with a weight of zero too: [n, n] of zeros and ones."""
    own = {name: w[m : m + 1] for name, w in method.weights(state).items()}
    found = method.latent(own, one := Cohort([client]))
    pairs = torch.zeros_like(latent).index_put(
        (found.links.source.long(), found.links.target.long()), torch.ones(found.links.count, dtype=torch.float64)
    )
    assert bool((pairs[latent.detach() > 1e-9] == 1).all())
    assert bool((pairs.sum(1) == min(K, one.sizes[0])).all())
    return pairs


def test_a_learner_that_is_not_trained_stays_as_it_was_drawn() -> None:
    clients = ragged_clients()
    cohort = Cohort(clients)
    frozen, trained = make(clients, train_learner=False, dropout=0.0), make(clients, dropout=0.0)
    state = scrambled(frozen, cohort)
    before = {name: w.clone() for name, w in state.items()}
    still, moving = gradients(frozen, state, cohort)[0], gradients(trained, state, cohort)[0]
    assert set(still) == set(moving)
    for name, grad in still.items():
        if name in LEARNER:
            assert not grad.any()
        else:
            assert_near(grad, moving[name], 1e-6)
    frozen.local_update(state, cohort, {}, 0)
    for name in LEARNER:
        assert torch.equal(state["model." + name], before["model." + name])
    assert not torch.equal(state["model.global1.weight"], before["model.global1.weight"])


@pytest.mark.parametrize("learner", ["knn", "random", "self"])
def test_latent_graphs_without_a_learner(learner: str) -> None:
    """There is nothing to share of it, clients on their own have the same graph, and training goes on."""
    clients = ragged_clients()
    cohort, method = Cohort(clients), make(clients, learner=learner, dropout=0.0)
    assert not any(name.startswith("learner.") for name in method.shapes())
    state = scrambled(method, cohort)
    personal = method.personal(state)
    logits = method.logits(personal, cohort)
    for m, client in enumerate(clients):
        own = {name: w[m : m + 1] for name, w in personal.items()}
        assert_near(cohort.parts_of(logits)[m], method.logits(own, Cohort([client])))
    assert set(gradients(method, state, cohort)[0]) == set(method.shapes())
    assert set(method.diagnostics(method.server_start()[0])) == {"weight_norm", "layer_spread"}
    if learner == "self":
        for m, client in enumerate(clients):
            w, eye = own_weights(personal, m), torch.eye(client.graph.nodes, dtype=torch.float64)
            assert_near(cohort.parts_of(logits)[m], plain_logits(client, w, eye, 0.2, 2).detach())


def test_the_representation_is_the_shared_part_alone() -> None:
    clients = ragged_clients()
    cohort, method = Cohort(clients), make(clients)
    personal = method.personal(scrambled(method, cohort))
    found = method.representation(personal, cohort)
    for m, client in enumerate(clients):
        w = own_weights(personal, m)
        latent = plain_latent(client, w, K)
        z = plain_projection(features(client), w)
        z = torch.relu(latent @ z @ w["global1.weight"] + w["global1.bias"])
        z = latent @ z @ w["global2.weight"] + w["global2.bias"]
        assert_near(cohort.parts_of(found)[m], z.detach())
    changed = personal | {name: personal[name] + 1.0 for name in LOCAL | CLASSIFIER}
    assert torch.equal(method.representation(changed, cohort), found)


# -- diagnostics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", ["global", "gcn", "all", "none"])
def test_diagnostics_are_norms_and_distances_of_what_was_sent(share: str) -> None:
    """A few lines of NumPy over the uploads; nothing is known before the first of them."""
    clients = ragged_clients()
    method, cohort = make(clients, share=share), Cohort(clients)
    server, down = method.server_start()
    assert down == {}
    known = {
        "global": {"weight_norm", "layer_spread", "learner_spread", "learner_change"},
        "gcn": {"weight_norm", "layer_spread"},
        "all": {"weight_norm", "layer_spread", "learner_spread", "learner_change"},
        "none": set(),
    }[share]
    assert {name: float(value) for name, value in method.diagnostics(server).items()} == dict.fromkeys(known, 0.0)
    uploads = method.upload(state := scrambled(method, cohort), method.personal(state), cohort, {})
    everyone = torch.arange(len(clients))
    method.aggregate(server, uploads, everyone, everyone)
    found = {name: float(value) for name, value in method.diagnostics(server).items()}
    assert set(found) == known
    if not known:
        return
    nodes = np.array(cohort.sizes, dtype=float)
    sent = {name: w.double().numpy() for name, w in uploads.items() if name != NODES}
    mean = {name: np.tensordot(nodes / nodes.sum(), w, 1) for name, w in sent.items()}

    def norm(parts: list[np.ndarray]) -> float:
        return math.sqrt(sum(float((one**2).sum()) for one in parts))

    def spread(names: list[str]) -> float:
        apart = [norm([sent[name][m] - mean[name] for name in names]) for m in range(len(clients))]
        return float(np.mean(apart)) / norm([mean[name] for name in names])

    assert found["weight_norm"] == pytest.approx(norm(list(mean.values())), rel=1e-5)
    layers = [name for name in sent if name.startswith(("model.global", "model.local"))]
    assert found["layer_spread"] == pytest.approx(spread(layers), rel=1e-5)
    learner = [name for name in sent if name.startswith("model.learner.")]
    if learner:
        start = {name: method.start(cohort)[name][0].double().numpy() for name in learner}
        moved = norm([mean[name] - start[name] for name in learner]) / norm(list(start.values()))
        assert found["learner_spread"] == pytest.approx(spread(learner), rel=1e-5)
        assert found["learner_change"] == pytest.approx(moved, rel=1e-5)


# -- dropout -----------------------------------------------------------------------------------------


def test_dropout_acts_after_every_layer() -> None:
    """Activations as the paper's f_0 and each layer give them, dropped and scaled by the client's own numbers."""
    clients = ragged_clients()
    cohort, method = Cohort(clients), make(clients, dropout=0.5)
    state = scrambled(method, cohort)
    w = method.weights(state)
    latent = learn("heads", cohort, {n.removeprefix("learner."): w[n] for n in LEARNER}, Form(K))
    dropout = Dropout(0.5, state[KEYS], 7)
    layers = method.layers(w, cohort, latent, dropout)
    calm = method.layers(w, cohort, latent, None)
    inside = torch.relu(linear(cohort, cohort.x, w["projection.weight"], w["projection.bias"]))
    inside = 2.0 * dropout.keep(cohort, 8, HIDDEN_LAYER) * inside
    first = torch.relu(linear(cohort, inside, w["projection.second.weight"], w["projection.second.bias"]))
    assert_near(layers[0], 2.0 * dropout.keep(cohort, 8, 0) * first)
    assert not torch.equal(first, calm[0])
    for layer in (1, 2):
        assert not layers[layer][dropout.keep(cohort, 8, layer) == 0].any()
    assert not torch.equal(gradients(method, state, cohort, 1)[1], gradients(method, state, cohort, 2)[1])


def all_dropped(rate: float, state: State, cohort: Cohort) -> int:
    """A step in which no training node keeps its own features."""
    for step in range(10_000):
        if not Dropout(rate, state[KEYS], step).keep(cohort.training, 1, OWN_LAYER)[cohort.training.real].any():
            return step
    raise AssertionError("there is no such step")


def test_own_dropout_hides_a_nodes_own_features_in_training_only() -> None:
    clients = ragged_clients()
    cohort = Cohort(clients)
    with_own, without = make(clients, dropout=0.0), make(clients, dropout=0.0, own_dropout=0.99)
    state = scrambled(with_own, cohort)
    step = all_dropped(0.99, state, cohort)
    # What X and Z^0 are multiplied with in the classifier: it does not matter, nor is it trained.
    other = {name: w.clone() for name, w in state.items()}
    other["model.classifier.raw"] += 1.0
    other["model.classifier.weight"][:, :8] += 1.0
    grads, loss = gradients(without, state, cohort, step)
    assert torch.equal(gradients(without, other, cohort, step)[1], loss)
    assert not torch.isclose(gradients(with_own, other, cohort, step)[1], loss).any()
    assert not grads["classifier.raw"].any()
    assert not grads["classifier.weight"][:, :8].any()
    assert grads["classifier.weight"][:, 8:].any()
    for m, client in enumerate(clients):  # the loss is that of the neighbours' layers alone
        w = own_weights(with_own.weights(state), m)
        w["classifier.raw"] = torch.zeros_like(w["classifier.raw"])
        w["classifier.weight"] = torch.cat([torch.zeros(8, 3), w["classifier.weight"][8:]])
        nodes = client.training_nodes
        with torch.no_grad():
            logits = plain_logits(client, w, plain_latent(client, w, K), 0.2, 2)[nodes]
        expected = cross_entropy(logits, torch.from_numpy(client.graph.y[nodes]))
        assert float(loss[m]) == pytest.approx(float(expected), rel=1e-4)
    personal = with_own.personal(state)
    assert torch.equal(with_own.logits(personal, cohort), without.logits(personal, cohort))


def test_own_dropout_drops_whole_nodes() -> None:
    """Where a node keeps its features, they count 1 / (1 - rate) times: the classifier's gradient is that of those nodes."""
    clients = ragged_clients()
    cohort, method = Cohort(clients), make(clients, dropout=0.0, own_dropout=0.5)
    state = scrambled(method, cohort)
    step = 5
    grads, _ = gradients(method, state, cohort, step)
    kept = Dropout(0.5, state[KEYS], step).keep(cohort.training, 1, OWN_LAYER)[cohort.training.real].ravel()
    assert 0 < float(kept.sum()) < len(kept)
    w = method.weights(state)
    for m, client in enumerate(clients):
        own, nodes = own_weights(w, m), client.training_nodes
        mine = 2.0 * kept[(cohort.client[cohort.train] == m)].double().unsqueeze(1)
        x, latent = features(client)[nodes], plain_latent(client, own, K)
        whole = plain_logits(client, own, latent, 0.2, 2)[nodes]
        z0 = plain_projection(x, own)
        from_own = x @ own["classifier.raw"] + z0 @ own["classifier.weight"][:8]
        loss = cross_entropy(whole + (mine - 1) * from_own, torch.from_numpy(client.graph.y[nodes]))
        (loss + plain_penalty(client, latent, 0.1, 0.1)).backward()
        for name, one in own.items():
            assert_near(grads[name][m], one.grad, 1e-4)


# -- what crosses ------------------------------------------------------------------------------------

SHARED = {
    "global": GLOBAL | LEARNER | PROJECTION,
    "gcn": GLOBAL | LOCAL,
    "all": GLOBAL | LOCAL | LEARNER | PROJECTION | CLASSIFIER,
    "none": set(),
}


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("share_projection", [True, False])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("share", SHARED)
def test_what_crosses(share: str, channels: int, share_projection: bool, participation: float) -> None:
    settings = {"share": share, "channels": channels, "share_projection": share_projection}
    training, tap = tapped(3, participation, **settings)
    names = SHARED[share] - (LOCAL if channels == 1 else set())
    if share == "global" and not share_projection:
        names = names - PROJECTION
    sent = {"model." + name for name in names}
    assert all(set(up) == (sent | {NODES} if sent else set()) for up in tap.ups)
    assert [set(down) for down in tap.downs] == [set(), sent, sent]
    for specs, messages in ((FedHERO.uploads, tap.ups), (FedHERO.downloads, tap.downs)):
        for message in messages:
            assert all(declared(specs, name) is not None for name in message)
    assert (training.progress.upload_bytes == 0) == (share == "none")
    # Neither under its own name nor any other does what stays at home cross.
    state = training.engine.parts[0].state
    home = [state[n][m] for n in state if n.startswith("model.") and n not in sent for m in range(5)]
    crossed = [one for up in tap.ups for tensor in up.values() for one in tensor]
    assert not any(w.shape == t.shape and torch.equal(w, t) for w in home for t in crossed)


def test_the_classifier_and_the_local_channel_stay_at_home() -> None:
    for settings in ({}, {"share_projection": False}, {"learner": "attention"}):
        _, tap = tapped(2, **settings)
        for message in tap.ups + tap.downs:
            assert not any(name.startswith(("model.classifier", "model.local")) for name in message)


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("share", ["global", "gcn", "all"])
def test_averages_are_weighted_by_nodes(share: str, participation: float) -> None:
    training, tap = tapped(4, participation, share=share)
    sizes = np.array([c.graph.nodes for c in training.engine.parts[0].cohort.members], dtype=float)
    for record, up, down in zip(training.records[:-1], tap.ups[:-1], tap.downs[1:], strict=True):
        there = np.arange(5) if record["participants"] == "all" else np.array(record["participants"])
        nodes = up[NODES].double().numpy()
        assert np.array_equal(nodes, sizes[there])
        assert len(nodes) == round(5 * participation)
        for name, mean in down.items():
            stacked = up[name].double().numpy()
            expected = np.einsum("m,m...->...", nodes, stacked) / nodes.sum()
            assert_near(mean, torch.from_numpy(expected))
            assert float((torch.from_numpy(stacked.mean(0)) - mean).abs().max()) > 1e-5


def test_a_client_takes_over_what_it_is_sent_and_keeps_the_rest() -> None:
    cohort, method = Cohort(ragged_clients()), make(dropout=0.0)
    state = scrambled(method, cohort)
    before = {name: w.clone() for name, w in state.items()}
    down = {"model." + name: numbers(9, *shape) for name, shape in method.shapes().items() if method.shares(name)}
    method.receive(state, down)
    for name in state:
        expected = down[name].expand_as(state[name]) if name in down else before[name]
        assert torch.equal(state[name], expected)


def test_without_sharing_clients_train_alone() -> None:
    """What other clients are does not matter then; it does with sharing."""
    clients = ragged_clients()
    others = [clients[0], *ragged_clients(seed=7)[1:]]
    for share in ("none", "global"):
        whole, changed = (tapped(3, clients=each, share=share)[0].engine.personal() for each in (clients, others))
        same = all(torch.allclose(whole[name][0], changed[name][0], atol=1e-5) for name in whole)
        assert same == (share == "none")


# -- any clients -------------------------------------------------------------------------------------


def without_edges() -> list[Client]:
    empty = np.zeros((2, 0), dtype=np.int64)
    return [Client(c.id, replace(c.graph, edges=empty), c.split) for c in ragged_clients((12, 14))]


def without_features() -> list[Client]:
    """All features of client 0 and some nodes of client 1 are zero."""
    clients = ragged_clients((12, 14))
    clients[0].graph.x[:] = 0.0
    clients[1].graph.x[::3] = 0.0
    return clients


ODD = {
    "no edges": without_edges,
    "no features": without_features,
    "one client": lambda: ragged_clients((14,)),
    "fewer nodes than k": lambda: ragged_clients((4, 5)),
}


def test_clients_whose_nodes_look_alike_train_as_they_would_alone() -> None:
    """One feature of three a node, on a path: many nodes see the same around them, and are not the same."""
    rng = np.random.default_rng(0)
    clients = []
    for client in ragged_clients((60, 41, 75, 33, 50)):
        n = client.graph.nodes
        x, path = np.eye(10, dtype=np.float32)[rng.integers(0, 3, n)], np.stack([np.arange(n - 1), np.arange(1, n)])
        clients.append(Client(client.id, replace(client.graph, x=x, edges=path), client.split))
    found = []
    for size in (None, 1, 3):
        training = make_training(make(clients, k=5), clients, Plan(4), size)
        training.run()
        found.append(training.engine.personal())
    for other in found[1:]:
        for name, w in found[0].items():
            assert_near(other[name], w)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("kind", ODD)
def test_a_few_rounds_of_odd_clients(kind: str, learner: str) -> None:
    clients = ODD[kind]()
    training, tap = tapped(4, 1.0, clients, learner=learner, k=6)
    assert all(math.isfinite(record["train_loss"]) for record in training.records)
    for message in (*tap.ups, *tap.downs, training.engine.personal()):
        assert all(bool(torch.isfinite(tensor).all()) for tensor in message.values())


@pytest.mark.parametrize(
    "settings",
    [*({"learner": kind} for kind in LEARNERS), {"latent": "bernoulli"}, {"channels": 1}, {"own_dropout": 0.5}],
    ids=lambda s: ",".join(f"{k}={v}" for k, v in s.items()),
)
def test_it_learns(settings: dict[str, Any]) -> None:
    clients = ragged_clients((60, 45, 80), seed=1)
    majority = make_training(make_method("majority", clients), clients, Plan(1))
    majority.run()
    training = make_training(make(clients, hidden=16, lr=0.01, **settings), clients, Plan(15))
    start = {n: w.clone() for n, w in training.engine.parts[0].state.items() if n.startswith("model.learner.")}
    training.run()
    assert training.records[-1]["test"] > majority.records[-1]["test"] + 0.1
    assert training.records[-1]["train_loss"] < training.records[0]["train_loss"] - 0.1
    state = training.engine.parts[0].state
    assert min(float((state[n] - w).abs().max()) for n, w in start.items()) > 0.01


@pytest.mark.parametrize("learner", LEARNERS)
def test_everyone_knows_where_clients_start(learner: str) -> None:
    method = make(learner=learner)
    known = method.public_start()
    for name, start in method.start(Cohort(ragged_clients())).items():
        if name.startswith("model."):
            assert torch.equal(known[name].expand_as(start), start), name
