"""FedIIH's formulas, each against a few lines of NumPy written from the paper."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.common.random_streams import torch_stream
from fedquilt.graphs.graph import Graph
from fedquilt.messages.message import declared
from fedquilt.methods import fediih
from fedquilt.methods.base_adam import KEYS
from fedquilt.methods.diagnostics import pair_median
from fedquilt.methods.fediih import HETEROPHILOUS, SAMPLES, TABLES, FedIIH
from fedquilt.methods.settings import build_settings
from fedquilt.nn.decoder import NOISE_LAYER, PAIR_LAYER, Pairs
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.routing import unit
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near, dense_adjacency, dense_features, numbers
from support.federations import (
    Wiretap,
    make_method,
    make_task,
    make_training,
    newest_uploads,
    ragged_clients,
    tapped_run,
)

seeds = st.integers(0, 2**31)
WEIGHTS = {f"model.{layer}.{kind}" for layer in ("projection", "classifier") for kind in ("weight", "bias")}
# factors, hidden: one; two; five, which divide the width or not, or are more than it has
SHAPES = [(1, 8), (2, 8), (5, 10), (5, 13), (5, 3)]


def make(clients: list[Client] | None = None, **settings: Any) -> FedIIH:
    clients = clients or ragged_clients()
    return make_method("fediih", clients, make_task(clients, epochs=2), **settings)


def tapped(rounds: int = 4, participation: float = 1.0, **settings: Any) -> tuple[Training, Wiretap]:
    clients = ragged_clients()
    return tapped_run(make(clients, **settings), clients, rounds, participation)


def scrambled(method: FedIIH, cohort: Cohort) -> dict[str, Tensor]:
    """A start where nothing is zero: neither biases, nor alpha-hat, nor the offset."""
    state = method.start(cohort)
    for i, name in enumerate(n for n in state if n.startswith("model.") or n in ("alpha", "spread")):
        state[name] += 0.3 * numbers(i, *state[name].shape)
    return state


def still(state: dict[str, Tensor], step: int = 5) -> Dropout:
    """The random numbers of a step that drops nothing."""
    return Dropout(0.0, state[KEYS], step)


# -- the model -------------------------------------------------------------------------------------


def leaky(z: np.ndarray) -> np.ndarray:
    return np.where(z > 0, z, 0.01 * z)


def length_one(z: np.ndarray) -> np.ndarray:
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


def routed_once(client: Client, z: np.ndarray, iterations: int) -> np.ndarray:
    """Appendix A, node by node: z [K, n, d] -> c [K, n, d]. Eq. 1's division comes first."""
    a, z = dense_adjacency(client), length_one(z)
    c = z.copy()
    for _ in range(iterations):
        new = z.copy()
        for u, v in zip(*np.nonzero(a), strict=True):
            p = np.exp((z[:, v] * c[:, u]).sum(-1))
            new[:, u] += (p / p.sum())[:, None] * z[:, v]
        c = length_one(new)
    return c


def projected(client: Client, weight: np.ndarray, bias: np.ndarray, factors: int) -> np.ndarray:
    """Eq. 1 before the division, factor by factor: [K, n, d]."""
    width = weight.shape[1] // factors
    parts = [slice(k * width, (k + 1) * width) for k in range(factors)]
    return np.stack([leaky(dense_features(client).astype(float) @ weight[:, p] + bias[p]) for p in parts])


def layered(client: Client, z: np.ndarray, layers: int, iterations: int) -> np.ndarray:
    for _ in range(layers):
        z = leaky(routed_once(client, z, iterations))
    return z


def of_client(cohort: Cohort, z: Tensor, m: int) -> Tensor:
    """[K, R, d] -> [K, n, d]."""
    first = int(cohort.start[m])
    return z[:, first : first + cohort.sizes[m]]


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize(("factors", "layers", "iterations"), [(1, 1, 3), (2, 2, 6), (4, 3, 1), (2, 5, 2)])
def test_projection_and_routing_equal_a_loop(factors: int, layers: int, iterations: int, through: bool) -> None:
    clients = ragged_clients((7, 12))
    cohort = Cohort(clients)
    method = make(clients, factors=factors, layers=layers, iterations=iterations, through=through)
    weights = method.weights(scrambled(method, cohort))
    z, c = method.represent(weights, cohort, None)
    logits = method.logits(weights, cohort)
    deep = max(1, layers - 2)
    for m, client in enumerate(clients):
        w = {name: value[m].double().numpy() for name, value in weights.items()}
        first = projected(client, w["projection.weight"], w["projection.bias"], factors)
        last = layered(client, first, deep, iterations)
        assert_near(of_client(cohort, z, m), torch.from_numpy(first))
        assert_near(of_client(cohort, c, m), torch.from_numpy(last), 1e-4)
        # Eq. 2: aspects side by side, then a linear classifier.
        read = np.concatenate(list(last), axis=1)
        expected = read @ w["classifier.weight"] + w["classifier.bias"]
        assert_near(cohort.parts_of(logits)[m], torch.from_numpy(expected), 1e-4)


@pytest.mark.parametrize(("layers", "classifying", "latent"), [(1, 1, 1), (2, 1, 1), (3, 1, 2), (4, 2, 2), (5, 3, 2)])
def test_the_last_two_layers_belong_to_the_autoencoder(layers: int, classifying: int, latent: int) -> None:
    method = make(layers=layers)
    assert (method.class_layers, method.latent_layers) == (classifying, latent)


@pytest.mark.parametrize("factors", [1, 2, 4])
def test_the_classifier_may_read_both(factors: int) -> None:
    """Factor k's part of what it reads is [projected k, of length one; routed k]."""
    cohort = Cohort(ragged_clients())
    method = make(factors=factors, classify="both")
    weights = method.weights(scrambled(method, cohort))
    assert weights["classifier.weight"].shape == (5, 16, 3)
    z, c = method.represent(weights, cohort, None)
    read, d = method.read(z, c), 8 // factors
    for k in range(factors):
        start = 2 * k * d
        assert_near(read[:, start : start + d], torch.nn.functional.normalize(z[k], dim=1))
        assert torch.equal(read[:, start + d : start + 2 * d], c[k])
    w, b = weights["classifier.weight"], weights["classifier.bias"]
    assert_near(method.logits(weights, cohort), torch.einsum("ri,rio->ro", read, w[cohort.client]) + b[cohort.client])


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("factors", "hidden"), SHAPES)
def test_any_number_of_factors(factors: int, hidden: int, wide: bool) -> None:
    method = make(factors=factors, hidden=hidden, wide=wide, iterations=2)
    width = hidden if wide else max(1, hidden // factors)
    assert (method.factors, method.width) == (factors, width)
    assert method.shapes()["projection.weight"] == (10, factors * width)
    training = make_training(method, ragged_clients(), Plan(2, 0.6))
    training.run()
    assert all(math.isfinite(record["train_loss"]) for record in training.records)
    assert method.similarity(training.server).shape == (factors, 5, 5)


# -- the evidence lower bound ------------------------------------------------------------------------


def elbo_terms(
    method: FedIIH, state: dict[str, Tensor], cohort: Cohort, above: np.ndarray, draws: Dropout
) -> dict[str, float]:
    """-(eq. 6) by its terms, client by client; the noise and the pairs are those that were drawn."""
    terms = dict.fromkeys(("reconstruction", "prior", "alpha-hat", "alpha"), 0.0)
    s = method.settings
    noise = draws.draws.normal(cohort, method.factors * method.width, NOISE_LAYER)
    pairs = Pairs(cohort)
    others = pairs.others(draws.draws, PAIR_LAYER)
    for m, client in enumerate(cohort.members):
        w = {name: value[m].double().numpy() for name, value in state.items()}
        z = projected(client, w["model.projection.weight"], w["model.projection.bias"], method.factors)
        z = layered(client, layered(client, z, method.class_layers, s.iterations), method.latent_layers, s.iterations)
        mean = np.concatenate(list(z), axis=1)
        variance = np.exp(mean + w["spread"])
        sample = mean + np.sqrt(variance) * cohort.parts_of(noise)[m].double().numpy()  # eq. 7
        first, logs = int(cohort.start[m]), []
        mine = (cohort.client[pairs.edges.source.long()] == m).numpy()
        for links, is_edge in ((pairs.edges, True), (others, False)):
            for u, v in zip(links.source.numpy()[mine] - first, links.target.numpy()[mine] - first, strict=True):
                p = 1 / (1 + np.exp(-sample[u] @ sample[v]))  # eq. 8
                logs.append(np.log(p if is_edge else 1 - p))
        centre = (w["alpha"] if s.centre == "own" else above) if s.hierarchy else np.zeros_like(w["alpha"])
        kl = 0.5 * (variance / 0.25 + (mean - centre) ** 2 / 0.25 - 1 - np.log(variance / 0.25))
        terms["reconstruction"] += -np.mean(logs)
        terms["prior"] += kl.mean()
        if s.hierarchy:
            terms["alpha-hat"] += 0.5 * np.mean(w["alpha"] ** 2)
            terms["alpha"] += 0.5 * np.mean((w["alpha"] - above) ** 2)
    return terms


@pytest.mark.parametrize(("hierarchy", "centre"), [(True, "own"), (True, "global"), (False, "own")])
@pytest.mark.parametrize(("factors", "layers"), [(2, 2), (4, 3), (1, 5)])
def test_the_negative_elbo_equals_its_terms(factors: int, layers: int, hierarchy: bool, centre: str) -> None:
    clients = ragged_clients((9, 14, 12))
    cohort = Cohort(clients)
    chosen = {"factors": factors, "layers": layers, "hierarchy": hierarchy, "centre": centre, "iterations": 3}
    method = make(clients, **chosen)
    state = scrambled(method, cohort)
    above, draws = 0.5 * numbers(9, 8), still(state)
    down = {"alpha": above} if hierarchy else {}

    def negative(**changes: Tensor) -> float:
        own = state | changes
        routed = method.represent(method.weights(own), cohort, None)[1]
        return float(method.negative_elbo(unit(routed), dict(own), own, cohort, draws, down))

    terms = elbo_terms(method, state, cohort, above.double().numpy(), draws)
    heavy = make(clients, **chosen, kl=7.0)
    routed = heavy.represent(heavy.weights(state), cohort, None)[1]
    weighed = sum(terms.values()) + 6.0 * (sum(terms.values()) - terms["reconstruction"])
    assert float(heavy.negative_elbo(unit(routed), dict(state), state, cohort, draws, down)) == pytest.approx(
        weighed, rel=1e-4
    )
    assert negative() == pytest.approx(sum(terms.values()), rel=1e-4)
    assert min(terms["reconstruction"], terms["prior"]) > 0.1
    # Term by term: without alpha-hat, only the terms it is in change.
    zero = torch.zeros_like(state["alpha"])
    without = elbo_terms(method, state | {"alpha": zero}, cohort, above.double().numpy(), draws)
    assert without["reconstruction"] == terms["reconstruction"]
    assert negative(alpha=zero) - negative() == pytest.approx(sum(without.values()) - sum(terms.values()), abs=2e-4)
    if hierarchy:
        assert min(terms["alpha-hat"], terms["alpha"]) > 0.01
        assert without["alpha-hat"] == 0
    else:
        assert negative(alpha=zero) == negative()
    # The Gaussians that go to the server are the means over nodes.
    noted = {name: tensor.clone() for name, tensor in state.items()}
    routed = method.represent(method.weights(state), cohort, None)[1]
    method.negative_elbo(unit(routed), noted, state, cohort, draws, down)
    for m, client in enumerate(clients):
        w = {name: value[m].double().numpy() for name, value in state.items()}
        z = projected(client, w["model.projection.weight"], w["model.projection.bias"], factors)
        z = layered(client, layered(client, z, method.class_layers, 3), method.latent_layers, 3)
        mean = np.concatenate(list(z), axis=1).mean(0)
        assert_near(noted["latent.mean"][m], torch.from_numpy(mean), 1e-4)
        assert_near(noted["latent.logvar"][m], torch.from_numpy(mean + w["spread"]), 1e-4)


def elbo_gradient(method: FedIIH, state: dict[str, Tensor], cohort: Cohort, down: dict[str, Tensor], step: int) -> dict:
    leaves = {name: w.detach().requires_grad_() for name, w in method.trained(state).items()}
    weights = {name.removeprefix("model."): w for name, w in leaves.items()}
    routed = method.represent(weights, cohort, None)[1]
    loss = method.negative_elbo(unit(routed), dict(state), leaves, cohort, still(state, step), down)
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()), allow_unused=True), strict=True))


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 5])
def test_the_elbo_alone_trains_the_projection(layers: int, through: bool) -> None:
    cohort = Cohort(ragged_clients())
    method = make(layers=layers, through=through)
    state = scrambled(method, cohort)
    grads = elbo_gradient(method, state, cohort, {"alpha": numbers(0, 8)}, 0)
    assert grads["model.classifier.weight"] is None
    assert grads["model.classifier.bias"] is None
    for name in ("model.projection.weight", "model.projection.bias", "alpha", "spread"):
        assert torch.isfinite(grads[name]).all()
    weight = grads["model.projection.weight"].view(5, 10, 4, 2)
    assert float(weight.abs().amax((1, 3)).min()) > 1e-5  # of every client, in every factor


def test_the_elbos_gradient_is_its_slope() -> None:
    """Of the differentiable kind (through every iteration), along a random direction."""
    clients = ragged_clients((9, 14))
    cohort, method = Cohort(clients), make(clients, factors=2, iterations=2, through=True)
    state, down = scrambled(method, cohort), {"alpha": numbers(0, 8)}
    name, direction = "model.projection.weight", numbers(1, 2, 10, 8)
    slope = float((elbo_gradient(method, state, cohort, down, 5)[name] * direction).sum())
    far = [
        sum(elbo_terms(method, state | {name: state[name].double() + h * direction}, cohort, down["alpha"].numpy(), d)
            .values())
        for d in [still(state)]
        for h in (-1e-5, 1e-5)
    ]  # fmt: skip
    assert slope == pytest.approx((far[1] - far[0]) / 2e-5, rel=1e-3)


def test_the_objective_is_cross_entropy_plus_a_share_of_the_elbo() -> None:
    cohort, down = Cohort(ragged_clients()), {"alpha": numbers(0, 8)}
    without, method = make(elbo=0.0), make(elbo=0.7)
    state = scrambled(method, cohort)
    plain, loss = without.gradients(dict(state), cohort, still(state), down)
    found, same = method.gradients(dict(state), cohort, still(state), down)
    elbo = elbo_gradient(method, state, cohort, down, 5)
    assert torch.equal(loss, same)  # the loss that is shown is the cross-entropy
    for name in found:
        assert_near(found[name], plain[name] + (0.0 if elbo[name] is None else 0.7 * elbo[name]))
    logits = method.logits(method.weights(state), cohort)
    for m, client in enumerate(cohort.members):
        nodes = client.training_nodes
        own = torch.log_softmax(cohort.parts_of(logits)[m].double(), 1)[nodes, client.graph.y[nodes]]
        assert float(loss[m]) == pytest.approx(-float(own.mean()), rel=1e-5)


def test_dropout_reaches_the_classifier_and_the_autoencoder() -> None:
    cohort, method = Cohort(ragged_clients()), make()
    state = scrambled(method, cohort)
    down = {"alpha": torch.zeros(8)}
    calm, _ = method.gradients(dict(state), cohort, still(state), down)
    wild, _ = method.gradients(dict(state), cohort, Dropout(0.5, state[KEYS], 5), down)
    assert all(not torch.equal(calm[name], wild[name]) for name in WEIGHTS | {"spread"})


@pytest.mark.parametrize("variational", [False, True])
def test_the_gaussians_may_be_moments(variational: bool) -> None:
    cohort, method = Cohort(ragged_clients()), make(variational=variational, gaussians="moments")
    state = scrambled(method, cohort)
    method.gradients(state, cohort, still(state), {"alpha": torch.zeros(8)})
    routed = method.represent(method.weights(state), cohort, None)[1]
    for m in range(5):
        h = of_client(cohort, routed, m).double().numpy()
        assert_near(state["latent.mean"][m], torch.from_numpy(h.mean(1).ravel()))
        assert_near(state["latent.logvar"][m].exp(), torch.from_numpy(h.var(1).ravel()))
    constant = make(variational=False, gaussians="moments")
    constant.note_moments(torch.ones(cohort.rows, 8), state, cohort)
    assert torch.isfinite(state["latent.logvar"]).all()


# -- who is averaged with whom -----------------------------------------------------------------------


def joint_similarity(mean: np.ndarray, logvar: np.ndarray, factors: int, seed: int) -> np.ndarray:
    """Eq. 9 by the server's own draws, pair by pair: [n, K d] -> [K, n, n]."""
    count, width = len(mean), mean.shape[1] // factors
    noise = torch.randn(SAMPLES, width, generator=torch_stream(seed, "server", "divergence")).double().numpy()
    out = np.ones((factors, count, count))
    for k, i, j in itertools.product(range(factors), range(count), range(count)):
        part = slice(k * width, (k + 1) * width)
        (m, s), (o, t) = ((mean[e, part], np.exp(logvar[e, part] / 2)) for e in (i, j))
        halves = []
        for own, other in (((m, s), (o, t)), ((o, t), (m, s))):
            x = own[0] + own[1] * noise
            p, q = (stats.norm.logpdf(x, *each).sum(1) for each in (own, other))
            halves.append(np.mean(p - (np.logaddexp(p, q) - np.log(2))) / np.log(2))
        out[k, i, j] = 1 - np.mean(halves)
    return out


def mean_similarity(mean: np.ndarray, logvar: np.ndarray, factors: int) -> np.ndarray:
    """1 - the mean over a factor's dimensions of the divergence of each, by integration."""
    count, width = len(mean), mean.shape[1] // factors
    apart = np.zeros((factors * width, count, count))
    for d, i, j in itertools.product(range(factors * width), range(count), range(count)):
        (m, s), (o, t) = ((mean[e, d], np.exp(logvar[e, d] / 2)) for e in (i, j))
        x = np.linspace(min(m - 10 * s, o - 10 * t), max(m + 10 * s, o + 10 * t), 4001)
        p, q = stats.norm.pdf(x, m, s) + 1e-300, stats.norm.pdf(x, o, t) + 1e-300
        each = 0.5 * (p * np.log2(2 * p / (p + q)) + q * np.log2(2 * q / (p + q)))
        apart[d, i, j] = np.trapezoid(each, x)
    return 1 - apart.reshape(factors, width, count, count).mean(1)


@pytest.mark.parametrize("divergence", ["joint", "mean"])
@pytest.mark.parametrize("factors", [1, 2, 4])
def test_similarity_is_one_minus_the_divergence(factors: int, divergence: str) -> None:
    mean, logvar = 0.4 * numbers(0, 4, 8), math.log(0.25) + 0.3 * numbers(1, 4, 8)
    mean[3], logvar[3] = mean[0], logvar[0]
    method = make(factors=factors, divergence=divergence)
    found = method.compare(mean, logvar)
    args = (mean.double().numpy(), logvar.double().numpy(), factors)
    expected = joint_similarity(*args, seed=3) if divergence == "joint" else mean_similarity(*args)
    assert_near(found, torch.from_numpy(expected), 1e-5 if divergence == "joint" else 2e-3)
    assert torch.equal(found, found.mT)
    assert_near(found.diagonal(dim1=1, dim2=2), torch.ones(factors, 4))
    assert_near(found[:, 0, 3], torch.ones(factors))
    far = method.compare(torch.tensor([[0.0] * 8, [100.0] * 8]), torch.zeros(2, 8))
    assert_near(far, torch.eye(2).expand(factors, -1, -1))


@pytest.mark.parametrize("classify", ["routed", "both"])
@pytest.mark.parametrize(("factors", "hidden"), SHAPES)
@settings(max_examples=5)
@given(seed=seeds, receivers=st.integers(1, 4), senders=st.integers(1, 4))
def test_mixing_equals_a_loop(
    factors: int, hidden: int, classify: str, seed: int, receivers: int, senders: int
) -> None:
    """Eq. 10, factor by factor, receiver by receiver, sender by sender."""
    method = make(factors=factors, hidden=hidden, classify=classify)
    beta = torch.softmax(numbers(seed, factors, receivers, senders), dim=2)
    wide = method.width
    rows = 2 * wide if classify == "both" else wide
    for i, (name, shape) in enumerate(method.shapes().items()):
        stack = numbers(seed + i, senders, *shape)
        found = method.joined(f"model.{name}", [method.mixed(f"model.{name}", stack, beta)])
        expected = torch.zeros(receivers, *shape, dtype=torch.float64)
        for m, j in itertools.product(range(receivers), range(senders)):
            if name == "classifier.bias":
                expected[m] += stack[j].double() / senders
                continue
            for k in range(factors):
                part = (
                    slice(k * rows, (k + 1) * rows) if name == "classifier.weight" else slice(k * wide, (k + 1) * wide)
                )
                if name == "projection.weight":
                    expected[m][:, part] += beta[k, m, j] * stack[j][:, part].double()
                else:
                    expected[m][part] += beta[k, m, j] * stack[j][part].double()
        assert_near(found, expected)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tau": 1.0, "classify": "both"},
        {"tau": 4.0},
        {"scale": "absolute"},
        {"scale": "relative", "reach": 2.0},
        {"divergence": "mean", "scale": "absolute"},
        {"factors": 5, "hidden": 13},
        {"variational": False, "gaussians": "moments"},
    ],
    ids=str,
)
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_aggregation_equals_numpy(changes: dict[str, Any], participation: float) -> None:
    """Over rounds: similarity and averages over what everyone sent last; eq. 10 to 12."""
    training, tap = tapped(5, participation, **changes)
    method = training.method
    whole = np.zeros((method.factors, 5, 5))
    parts = [r["participants"] if r["participants"] != "all" else list(range(5)) for r in training.records]
    kept = 0
    for r, (here, up) in enumerate(newest_uploads(training, tap)):
        kept += len(set(here) - set(parts[r]))
        args = (up["latent.mean"], up["latent.logvar"], method.factors)
        mean_kind = method.settings.divergence == "mean"
        s = mean_similarity(*args) if mean_kind else joint_similarity(*args, seed=3)
        whole[:, np.array(here)[:, None], here] = s
        if r + 1 == len(parts):  # after the last round, too, but nothing is sent then
            break
        there = parts[r + 1]
        sharp = method.settings.reach / (1 - np.array([lower_median(each) for each in s]))
        sharp = {"relative": sharp, "absolute": method.settings.tau, "capped": np.minimum(sharp, method.settings.tau)}
        found = whole[:, there][:, :, here]  # zeros of who never sent
        score = np.reshape(sharp[method.settings.scale], (-1, 1, 1)) * found
        beta = np.exp(score) / np.exp(score).sum(2, keepdims=True)  # eq. 11
        down = tap.downs[r + 1]
        for name in WEIGHTS:
            expected = np.zeros((len(there), *up[name].shape[1:]))
            for k, m, j in itertools.product(range(method.factors), range(len(there)), range(len(here))):
                w = up[name][j]
                own = np.zeros_like(w)
                if name == "model.classifier.bias":
                    own = w / len(here) / method.factors
                elif name == "model.projection.weight":
                    part = slice(k * method.width, (k + 1) * method.width)
                    own[:, part] = beta[k, m, j] * w[:, part]
                else:
                    size = len(w) // method.factors
                    own[k * size : (k + 1) * size] = beta[k, m, j] * w[k * size : (k + 1) * size]
                expected[m] += own
            assert_near(down[name], torch.from_numpy(expected), 5e-3 if mean_kind else 5e-5)
        if method.settings.variational:
            assert_near(down["alpha"], torch.from_numpy(up["latent.mean"].sum(0) / (len(here) + 0.25)))  # eq. 12
    assert_near(training.server["similarity"], torch.from_numpy(whole), 2e-3 if mean_kind else 2e-5)
    assert method.similarity(training.server) is training.server["similarity"]
    assert (kept > 0) == (participation < 1)  # whoever sits out counts with what it sent last


def lower_median(similarity: np.ndarray) -> float:
    """Over pairs of different clients, the lower of two in the middle."""
    pairs = np.sort(similarity[np.triu_indices(len(similarity), 1)])
    return float(pairs[(len(pairs) - 1) // 2])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_the_median_is_over_pairs_of_different_clients(count: int) -> None:
    found = numbers(count, 3, count, count)
    found = found + found.mT
    expected = [lower_median(each) if count > 1 else 1.0 for each in found.double().numpy()]
    assert_near(pair_median(found), torch.tensor(expected))


def posteriors(clients: int, spread: float) -> dict[str, Tensor]:
    return {"latent.mean": spread * numbers(8, clients, 8), "latent.logvar": 0.1 * numbers(9, clients, 8)}


@pytest.mark.parametrize("divergence", ["joint", "mean"])
def test_a_client_at_the_median_weighs_e_to_minus_reach_of_oneself_whatever_the_spread(divergence: str) -> None:
    everyone, found = torch.arange(5), []
    for spread in (0.05, 0.2):
        method = make(divergence=divergence, factors=2, scale="relative", reach=2.0)
        server, _ = method.server_start()
        beta = method.weigh(server, posteriors(5, spread), everyone, everyone).double()
        relative = beta / beta.diagonal(dim1=1, dim2=2).unsqueeze(2)
        for each in relative.numpy():
            assert lower_median(np.minimum(each, each.T)) == pytest.approx(math.exp(-2.0), rel=1e-3)
        found.append(float(method.diagnostics(server | {"weights": beta})["effective_clients"]))
    assert found[0] == pytest.approx(found[1], rel=0.15)
    literal = make(divergence=divergence, factors=2, scale="absolute")
    wide, close = (literal.weigh(literal.server_start()[0], posteriors(5, s), everyone, everyone) for s in (1.0, 0.05))
    assert float((wide - close).diagonal(dim1=1, dim2=2).mean()) > 0.05


def test_capped_is_as_printed_for_clients_that_are_alike_and_relative_for_others() -> None:
    capped, relative, absolute = (make(factors=2, scale=kind) for kind in ("capped", "relative", "absolute"))
    everyone = torch.arange(5)
    for spread, same in ((1.0, relative), (0.01, absolute)):
        given = (posteriors(5, spread), everyone, everyone)
        assert_near(capped.weigh(capped.server_start()[0], *given), same.weigh(same.server_start()[0], *given))


def test_clients_that_are_all_alike_are_averaged_plainly() -> None:
    method, everyone = make(factors=2), torch.arange(5)
    alike = {name: value[:1].repeat(5, 1) for name, value in posteriors(5, 1.0).items()}
    assert_near(method.weigh(method.server_start()[0], alike, everyone, everyone), torch.full((2, 5, 5), 0.2))
    alone = method.weigh(method.server_start()[0], posteriors(1, 1.0), everyone[2:3], everyone)
    assert torch.equal(alone, torch.ones(2, 5, 1))


def test_without_variational_inference_the_server_averages_plainly() -> None:
    """Nothing is inferred that could be compared, so nothing but the model crosses."""
    training, tap = tapped(4, 0.6, variational=False)
    method = training.method
    for down, (_, up) in zip(tap.downs[1:], newest_uploads(training, tap), strict=False):
        for name in WEIGHTS:
            for m in range(len(down[name])):
                assert_near(down[name][m], torch.from_numpy(up[name].mean(0)))
    assert all(set(up) == WEIGHTS for up in tap.ups)
    assert [set(down) for down in tap.downs] == [set()] + [WEIGHTS] * 3
    assert [spec.name for spec in method.sent_uploads()] == ["model.*"]
    assert method.similarity(training.server) is None


@pytest.mark.parametrize("changes", [{}, {"scale": "absolute"}, {"variational": False}], ids=str)
def test_diagnostics_are_of_the_weights_of_the_last_averages(changes: dict[str, Any]) -> None:
    method = make(factors=2, **changes)
    server, _ = method.server_start()
    start = {name: float(value) for name, value in method.diagnostics(server).items()}
    assert (start["effective_clients"], start["own_weight"]) == (1.0, 1.0)  # everyone alone, so far
    uploads = {f"model.{name}": numbers(i, 5, *shape) for i, (name, shape) in enumerate(method.shapes().items())}
    everyone, some = torch.arange(5), torch.tensor([0, 1, 4])
    sent = uploads | posteriors(5, 0.3)
    fewer = {name: value[:3] for name, value in sent.items()}
    beta = np.zeros((2, 5, 5))  # of each client's last average
    beta[:] = method.weigh(dict(method.server_start()[0]), sent, everyone, everyone).double().numpy()
    method.aggregate(server, sent, everyone, everyone)
    beta[:, some] = 0.0
    again = {name: value.clone() for name, value in server.items()}
    beta[:, some[:, None], some] = method.weigh(again, fewer, some, some).double().numpy()
    first = {name: server[name][:, [2, 3]].clone() for name in ("own", "effective")}
    method.aggregate(server, fewer, some, some)
    assert all(
        torch.equal(server[name][:, [2, 3]], value) for name, value in first.items()
    )  # who sat out keeps its last
    assert_near(server["own"], torch.from_numpy(np.diagonal(beta, axis1=1, axis2=2).copy()))
    found = method.diagnostics(server)
    entropy = -(beta * np.log(np.where(beta > 0, beta, 1.0))).sum(2)
    assert_near(found["effective_clients"], torch.tensor(np.exp(entropy).mean()))
    assert_near(found["own_weight"], torch.tensor(np.diagonal(beta, axis1=1, axis2=2).mean()))
    if method.compares:
        medians = [lower_median(each) for each in server["similarity"].double().numpy()]
        assert_near(found["similarity_median"], torch.tensor(np.mean(medians)))
    assert ("similarity_median" in found) == method.compares
    assert all(value.shape == () for value in found.values())


@pytest.mark.parametrize("changes", [{}, {"divergence": "mean"}, {"variational": False}], ids=str)
def test_some_factors_at_a_time_give_the_same(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As with thousands of clients, whose pairs are many."""
    method, everyone, some = make(factors=4, **changes), torch.arange(5), torch.tensor([0, 1, 4])
    uploads = {f"model.{name}": numbers(i, 5, *shape) for i, (name, shape) in enumerate(method.shapes().items())}
    uploads |= posteriors(5, 0.3)
    found = []
    for chunk in (fediih.CHUNK, 1):
        monkeypatch.setattr(fediih, "CHUNK", chunk)
        server = method.server_start()[0]
        downs = [method.aggregate(server, uploads, everyone, some)]
        downs.append(method.aggregate(server, {n: v[some] for n, v in uploads.items()}, some, everyone))
        found.append([*server.values(), *(value for down in downs for value in down.values())])
    assert method.at_once(5) == 1
    for one, two in zip(*found, strict=True):
        assert_near(one.double(), two.double())


def test_who_was_never_compared_gets_the_plain_mean() -> None:
    method = make(factors=2)
    server, _ = method.server_start()
    uploads = {f"model.{name}": numbers(i, 2, *shape) for i, (name, shape) in enumerate(method.shapes().items())}
    uploads |= {"latent.mean": numbers(8, 2, 8), "latent.logvar": numbers(9, 2, 8)}
    down = method.aggregate(server, uploads, torch.tensor([1, 3]), torch.tensor([0, 3]))
    for name in WEIGHTS:
        assert_near(down[name][0], uploads[name].mean(0))
    assert not torch.allclose(down["model.projection.weight"][1], uploads["model.projection.weight"].mean(0))
    assert not server["similarity"][:, 0].any()


def test_a_large_tau_leaves_each_client_its_own_model() -> None:
    _, tap = tapped(2, tau=1e6, scale="absolute")
    for name in WEIGHTS - {"model.classifier.bias"}:
        assert_near(tap.downs[1][name], tap.ups[0][name])


# -- what crosses ------------------------------------------------------------------------------------


MOMENTS = {"variational": False, "gaussians": "moments"}


@pytest.mark.parametrize("changes", [{}, {"hierarchy": False}, MOMENTS, {"disentangle": False}], ids=str)
def test_what_crosses_is_the_model_the_gaussians_and_alpha(changes: dict[str, Any]) -> None:
    training, tap = tapped(3, 0.6, **changes)
    alpha = set() if changes in ({"hierarchy": False}, MOMENTS) else {"alpha"}
    for up in tap.ups:
        assert set(up) == WEIGHTS | {"latent.mean", "latent.logvar"}
    assert [set(down) for down in tap.downs] == [alpha] + [WEIGHTS | alpha] * 2
    for specs, messages in ((FedIIH.uploads, tap.ups), (FedIIH.downloads, tap.downs)):
        for message in messages:
            assert all(declared(specs, name) is not None for name in message)
    assert set(training.engine.personal()) == {name.removeprefix("model.") for name in WEIGHTS}


def test_alpha_hat_and_the_offset_stay_at_home() -> None:
    training, tap = tapped(4)
    method, state = training.method, training.engine.parts[0].state
    sent = [tensor for message in tap.ups + tap.downs for tensor in message.values()]
    for name, start in (("alpha", 0.0), ("spread", math.log(0.25))):
        own = state[name]
        assert float((own - start).abs().max()) > 1e-3  # they are trained
        for tensor in sent:
            assert tensor.shape != own.shape or not torch.isclose(tensor, own).all(1).any()
    # What comes is not taken over: alpha-hat is the client's own.
    mine = {name: tensor.clone() for name, tensor in state.items()}
    method.receive(mine, tap.downs[-1])
    assert torch.equal(mine["alpha"], state["alpha"])
    assert torch.equal(mine["spread"], state["spread"])
    for name in WEIGHTS:
        assert torch.equal(mine[name], tap.downs[-1][name])


# -- settings ----------------------------------------------------------------------------------------


def test_defaults_are_the_papers_tables() -> None:
    """Tables 3 and 4: latent factors, learning rate, width, dropout, decay, layers, iterations."""
    names = ("factors", "lr", "hidden", "dropout", "weight_decay", "layers", "iterations")
    printed = {
        ("cora", "disjoint"): (2, 0.02, 128, 0.3, 0.005, 4, 6),
        ("cora", "overlapping"): (2, 0.01, 256, 0.35, 1e-6, 5, 6),
        ("citeseer", "disjoint"): (2, 0.01, 256, 0.35, 1e-6, 5, 6),
        ("pubmed", "disjoint"): (4, 0.01, 256, 0.25, 0.0045, 1, 6),
        ("pubmed", "overlapping"): (2, 0.015, 256, 0.4, 1e-6, 1, 6),
        ("roman-empire", "disjoint"): (4, 0.015, 128, 0.35, 1e-6, 1, 6),
        ("amazon-ratings", "disjoint"): (4, 0.01, 128, 0.35, 1e-6, 3, 7),
        ("minesweeper", "overlapping"): (4, 0.01, 128, 0.35, 1e-6, 6, 7),
        ("tolokers", "overlapping"): (10, 0.01, 128, 0.35, 0.0045, 1, 2),
        ("questions", "disjoint"): (8, 0.01, 256, 0.35, 1e-6, 5, 6),
    }
    for (dataset, partition), values in printed.items():
        context = make_task(ragged_clients(), dataset=dataset, partition=partition, epochs=2)
        both = {"classify": "both"} if dataset in HETEROPHILOUS else {}
        assert FedIIH.defaults(context) == {"epochs": 2} | dict(zip(names, values, strict=True)) | both
        found = dataclasses.asdict(build_settings(FedIIH, context, {}))
        assert tuple(found[name] for name in names) == values
        assert (found["tau"], found["scale"], found["reach"]) == (10.0, "capped", 3.0)
        assert build_settings(FedIIH, context, {"factors": 3}).factors == 3
    assert FedIIH.defaults(make_task(ragged_clients())) == {"epochs": 1}
    assert FedIIH.defaults(make_task(ragged_clients(), dataset="cora", partition="louvain")) == {"epochs": 1}
    links = FedIIH.defaults(make_task(ragged_clients(), dataset="cora", partition="disjoint", task="link"))
    assert links == {"epochs": 1, **TABLES["cora", "disjoint"], "lr": 0.005, "weight_decay": 0.0}
    assert len(TABLES) == 22
    assert {dataset for dataset, _ in TABLES} >= set(HETEROPHILOUS)


def test_ablations_change_what_they_say() -> None:
    cohort, weights = Cohort(ragged_clients()), set(WEIGHTS)
    for changes, trained in (
        ({}, weights | {"alpha", "spread"}),
        ({"hierarchy": False}, weights | {"spread"}),
        ({"variational": False}, weights),
        ({"variational": False, "hierarchy": False}, weights),
    ):
        method = make(**changes)
        state = method.start(cohort)
        assert set(method.trained(state)) == trained
        assert {name.removeprefix("adam.first.") for name in state if name.startswith("adam.first.")} == trained
        assert ("alpha" in method.server_start()[1]) == ("alpha" in trained)
    whole = make(factors=4, hidden=12, disentangle=False)
    assert (whole.factors, whole.width) == (1, 12)
    assert whole.shapes() == make(factors=4, hidden=12).shapes()
    public = make(factors=4, hidden=12, wide=True)
    assert (public.factors, public.width) == (4, 12)
    both = make(factors=4, hidden=12, wide=True, disentangle=False)
    assert (both.factors, both.width) == (1, 48)


def test_without_a_hierarchy_the_prior_is_centred_at_zero() -> None:
    """Whatever alpha-hat is: it is not looked at."""
    cohort, method = Cohort(ragged_clients()), make(hierarchy=False)
    state = scrambled(method, cohort)
    one, _ = method.gradients(dict(state), cohort, still(state), {})
    two, _ = method.gradients(state | {"alpha": state["alpha"] + 1.0}, cohort, still(state), {})
    assert all(torch.equal(one[name], two[name]) for name in one)


# -- it learns, whatever the clients -----------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"classify": "both"}, {"disentangle": False}], ids=str)
def test_it_learns_more_than_the_most_common_class(changes: dict[str, Any]) -> None:
    clients = ragged_clients((60, 45, 80), seed=1)
    majority = make_training(make_method("majority", clients), clients, Plan(1))
    majority.run()
    training = make_training(make(clients, hidden=16, lr=0.03, **changes), clients, Plan(15))
    training.run()
    assert training.records[-1]["test"] > majority.records[-1]["test"] + 0.1
    assert training.records[-1]["train_loss"] < training.records[0]["train_loss"] - 0.1


@pytest.mark.parametrize("changes", [{}, {"layers": 3, "through": True}, {"variational": False}], ids=str)
def test_clients_without_edges_or_on_their_own(changes: dict[str, Any]) -> None:
    some = ragged_clients((9, 12, 10))
    g = some[1].graph
    some[1] = Client(1, Graph(g.name, np.zeros((2, 0), dtype=np.int64), g.x, g.y, g.classes), some[1].split)
    for clients in (some, some[:1]):
        training = make_training(make(clients, **changes), clients, Plan(3))
        training.run()
        assert all(math.isfinite(record["train_loss"]) for record in training.records)
        assert torch.isfinite(training.server["similarity"]).all()


def with_an_empty_node(alone: bool) -> list[Client]:
    """A client with a node that has no feature at all and, if `alone`, no neighbour either."""
    client = ragged_clients()[0]
    g, x = client.graph, client.graph.x.copy()
    x[0] = 0.0
    edges = g.edges[:, (g.edges != 0).all(0)] if alone else g.edges
    return [Client(0, Graph(g.name, edges, x, g.y, g.classes), client.split)]


@pytest.mark.parametrize("layers", [2, 5])
@pytest.mark.parametrize("alone", [False, True])
def test_a_node_without_features_does_not_swamp_the_gradient(layers: int, alone: bool) -> None:
    clients = with_an_empty_node(alone)
    cohort, method = Cohort(clients), make(clients, factors=2, hidden=16, layers=layers)
    state = method.start(cohort)
    grads, _ = method.gradients(state, cohort, still(state), method.server_start()[1])
    for name, grad in grads.items():
        assert torch.isfinite(grad).all(), name
        assert float(grad.abs().max()) < 50, name


def test_dropping_all_of_a_narrow_factor_keeps_gradients_finite() -> None:
    clients = ragged_clients((9, 12, 10))
    cohort, method = Cohort(clients), make(clients, factors=4, hidden=8, layers=5)
    state = method.start(cohort)
    for step in range(10):
        grads, _ = method.gradients(state, cohort, Dropout(0.35, state[KEYS], step), method.server_start()[1])
        assert all(bool(torch.isfinite(grad).all()) for grad in grads.values())


def test_a_node_without_features_or_neighbours_does_not_stop_a_run() -> None:
    clients = with_an_empty_node(alone=True)
    make_training(make(clients, factors=2, hidden=16, layers=5), clients, Plan(2)).run()
