"""FedSSA's formulas, each against a few lines of NumPy written from the paper."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.linalg import matrix_power
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence
from torch.utils._python_dispatch import TorchDispatchMode

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.graphs.split import TRAIN, VAL
from fedquilt.messages.message import declared
from fedquilt.methods.base_adam import KEYS
from fedquilt.methods.fedssa import (
    Encoder,
    FedSSA,
    negative_elbo,
    projection,
    semantic_loss,
)
from fedquilt.nn import class_gaussians as class_gaussians_module
from fedquilt.nn import k_means, subspaces
from fedquilt.nn.class_gaussians import class_gaussians
from fedquilt.nn.decoder import NOISE_LAYER, PAIR_LAYER, Pairs
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.gaussians import class_separation
from fedquilt.nn.spectral import KINDS, client_basis, normalised
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near, dense_features, lay, numbers, random_client
from support.federations import Wiretap, make_method, make_task, make_training, ragged_clients, tapped_run
from support.labelled import gcn_operator, known_labels, odd_clients

seeds = st.integers(0, 2**31)
ENCODERS = get_args(Encoder)
STRUCTURAL = {"filter", "energy"}
SEMANTIC = {"class.mean", "class.covariance", "class.count"}


def make(clients: list[Client] | None = None, **settings: Any) -> FedSSA:
    clients = clients or ragged_clients()
    return make_method("fedssa", clients, make_task(clients, epochs=2), **({"latent": 4, "order": 4} | settings))


def tapped(
    rounds: int = 4, participation: float = 1.0, clients: list[Client] | None = None, **settings: Any
) -> tuple[Training, Wiretap]:
    clients = clients or ragged_clients()
    return tapped_run(make(clients, **settings), clients, rounds, participation)


def covariances(seed: int, *shape: int) -> Tensor:
    """[..., d, d] positive definite."""
    root = numbers(seed, *shape, shape[-1])
    return root @ root.mT / shape[-1] + 0.2 * torch.eye(shape[-1])


def scrambled(method: FedSSA, cohort: Cohort) -> dict[str, Tensor]:
    state = method.start(cohort)
    for i, name in enumerate(n for n in state if n.startswith("model.") or n == "filter"):
        state[name] += 0.3 * numbers(i, *state[name].shape)
    return state


# -- the local model ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("encoder", "classify"), [("separate", "both"), ("spectral", "mean"), ("spectral", "both")])
@pytest.mark.parametrize("basis", KINDS)
def test_the_model_is_a_filter_and_an_mlp(basis: str, encoder: str, classify: str) -> None:
    """Eq. 8, then a hidden layer, the means of the latent variables if the classifier reads them, and the classifier.

    The loss is the cross-entropy of the training nodes.
    """
    clients = ragged_clients()
    chosen = {"basis": basis, "encoder": encoder, "classify": classify}
    cohort, method = Cohort(clients), make(clients, **chosen, dropout=0.0, input_dropout=0.0)
    state = scrambled(method, cohort)
    personal = method.personal(state)
    latent = {"latent.weight", "latent.bias"} if encoder == "spectral" else set()
    network = {"filter", "hidden.weight", "hidden.bias", "classifier.weight", "classifier.bias"}
    assert set(personal) == network | latent
    logits = method.logits(personal, cohort)
    _, loss = method.gradients(dict(state), cohort, Dropout(0.0, state[KEYS], 0), {})
    for m, client in enumerate(clients):
        w = {name: value[m].double().numpy() for name, value in personal.items()}
        h = filtered_hidden(client, w, basis)
        if latent:
            mean = h @ w["latent.weight"] + w["latent.bias"]
            h = mean if classify == "mean" else np.concatenate([h, mean], axis=1)
        expected = torch.from_numpy(h @ w["classifier.weight"] + w["classifier.bias"])
        assert_near(cohort.parts_of(logits)[m], expected)
        nodes = client.training_nodes
        own = torch.log_softmax(expected, 1)[nodes, client.graph.y[nodes]]
        assert float(loss[m]) == pytest.approx(-float(own.mean()), rel=1e-4)


def filtered_hidden(client: Client, w: dict[str, np.ndarray], basis: str = "unifilter") -> np.ndarray:
    """relu((sum_k w_k H_k) W + b), [n, hidden]."""
    signal = np.einsum("k,knf->nf", w["filter"], client_basis(client, basis, 4, 0.8))
    return np.maximum(signal @ w["hidden.weight"] + w["hidden.bias"], 0)


def test_dropout_of_inputs_and_of_hidden_units() -> None:
    cohort = Cohort(ragged_clients())
    state = scrambled(make(), cohort)
    found = []
    for hidden, inputs in ((0.0, 0.0), (0.5, 0.0), (0.0, 0.5)):
        method = make(dropout=hidden, input_dropout=inputs)
        found.append(method.gradients(dict(state), cohort, Dropout(hidden, state[KEYS], 0), {})[1])
    for one, two in itertools.combinations(found, 2):
        assert not torch.isclose(one, two).any()


def test_the_separate_encoder_is_two_graph_convolutions_of_features_and_known_labels() -> None:
    clients = ragged_clients()
    cohort, method = Cohort(clients), make(clients, encoder="separate")
    weights = method.weights(scrambled(method, cohort))
    mean, logvar = method.separate_encode(weights, cohort)
    assert mean.shape == logvar.shape == (cohort.rows, 4)
    for m, client in enumerate(clients):
        w, a = {name: value[m].double().numpy() for name, value in weights.items()}, gcn_operator(client)
        h = a @ (dense_features(client) @ w["hidden.weight"] + known_labels(client) @ w["encoder.label"])
        h = np.maximum(h + w["hidden.bias"], 0)
        both = torch.from_numpy(a @ h @ w["encoder.weight"] + w["encoder.bias"])
        assert_near(cohort.parts_of(mean)[m], both[:, :4])
        assert_near(cohort.parts_of(logvar)[m], both[:, 4:])


def spectral_posterior(client: Client, w: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The means and log-variances of a client's nodes, [n, d] each."""
    h = filtered_hidden(client, w)
    mean = h @ w["latent.weight"] + w["latent.bias"]
    return mean, h @ w["encoder.weight"] + w["encoder.bias"] + known_labels(client) @ w["encoder.label"]


@pytest.mark.parametrize("layout", ["padded", "compact"])
def test_the_spectral_encoder_equals_numpy(layout: str) -> None:
    """Two heads on the filtered hidden layer; a label enters the log-variance of its own training node and nothing else."""
    clients = ragged_clients()
    cohort, method = lay(clients, layout), make(clients)
    state = scrambled(method, cohort)
    weights = method.weights(state) | {"filter": state["filter"]}
    for rows in (cohort, cohort.training):
        mean, logvar = method.encode(weights, cohort, rows, method.hidden_layer(weights, cohort, rows))
        assert mean.shape == logvar.shape == (rows.rows, 4)
        for m, client in enumerate(clients):
            expected = spectral_posterior(client, {name: value[m].double().numpy() for name, value in weights.items()})
            nodes = slice(None) if rows is cohort else client.training_nodes
            for found, right in zip((mean, logvar), expected, strict=True):
                assert_near(rows.parts_of(found)[m], torch.from_numpy(right[nodes]))


def test_no_label_is_in_what_the_classifier_reads() -> None:
    """Other labels of the training nodes change their log-variances, and neither means nor logits."""
    clients = ragged_clients()
    others = []
    for client in clients:
        y = client.graph.y.copy()
        y[client.training_nodes] = (y[client.training_nodes] + 1) % client.graph.classes
        others.append(Client(client.id, replace(client.graph, y=y), client.split))
    method = make(clients, basis="monomial")  # UniFilter's basis reads the homophily of training nodes
    state = scrambled(method, Cohort(clients))
    weights, found = method.weights(state) | {"filter": state["filter"]}, []
    for some in (clients, others):
        cohort = Cohort(some)
        encoded = method.encode(weights, cohort, cohort, method.hidden_layer(weights, cohort, cohort))
        found.append((*encoded, method.logits(method.personal(state), cohort)))
    (mean, logvar, logits), (other_mean, other_logvar, other_logits) = found
    assert torch.equal(mean, other_mean)
    assert torch.equal(logits, other_logits)
    changed = (logvar != other_logvar).any(1)
    assert torch.equal(torch.nonzero(changed).ravel(), Cohort(clients).train)


def numpy_objective(
    cohort: Cohort, w: dict[str, np.ndarray], step: Dropout, down: dict[str, Tensor], elbo: float, semantic: float
) -> float:
    """Eq. 41 without its terms on the coefficients, summed over clients; weights [M, ...] in double precision."""
    noise, pairs = step.draws.normal(cohort, 4, NOISE_LAYER).double().numpy(), Pairs(cohort)
    others, total = pairs.others(step.draws, PAIR_LAYER), 0.0
    for m, client in enumerate(cohort.members):
        own, first = {name: value[m] for name, value in w.items()}, int(cohort.start[m])
        mean, logvar = spectral_posterior(client, own)
        read = np.concatenate([filtered_hidden(client, own), mean], axis=1)
        nodes, y = client.training_nodes, client.graph.y
        logits = read @ own["classifier.weight"] + own["classifier.bias"]
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        total -= logs[nodes, y[nodes]].mean()
        sample = mean + np.exp(logvar / 2) * noise[first : first + len(mean)]
        mine = (cohort.client[pairs.edges.source.long()] == m).numpy()
        losses = []
        for links, sign in ((pairs.edges, 1), (others, -1)):
            u, v = links.source.numpy()[mine] - first, links.target.numpy()[mine] - first
            losses.append(np.log1p(np.exp(-sign * (sample[u] * sample[v]).sum(1))))
        total += elbo * (np.mean(losses) + np.mean(0.5 * (np.exp(logvar) + mean**2 - 1 - logvar)))
        for c in np.unique(y[nodes]):
            here = nodes[y[nodes] == c]
            spread, kept = (
                np.cov(mean[here].T, bias=True) if len(here) > 1 else np.zeros((4, 4)),
                len(here) / (len(here) + 4),
            )
            cov = kept * spread + (1 - kept) * np.diag(np.diag(spread)) + np.diag(np.exp(logvar[here]).mean(0))
            other, gap = (
                down["cluster.covariance"][m, c, 0].double().numpy(),
                down["cluster.mean"][m, c, 0].numpy() - mean[here].mean(0),
            )
            inverse = np.linalg.inv(other)
            volume = np.linalg.slogdet(other)[1] - np.linalg.slogdet(cov)[1]
            total += semantic * 0.5 * (np.trace(inverse @ cov) + gap @ inverse @ gap - 4 + volume)
    return float(total)


@pytest.mark.parametrize(("elbo", "semantic"), [(0.0, 0.0), (0.0, 0.3), (0.2, 0.3)])
def test_gradients_are_those_of_the_objective_in_numpy(elbo: float, semantic: float) -> None:
    """By central differences in double precision, at some entries of every weight."""
    clients = ragged_clients((25, 18, 31))
    cohort = Cohort(clients)
    method = make(clients, elbo=elbo, semantic_weight=semantic, dropout=0.0, input_dropout=0.0, hidden=8)
    state, step = scrambled(method, cohort), Dropout(0.0, method.start(cohort)[KEYS], 1)
    down = {"cluster.mean": numbers(0, 3, 3, 1, 4), "cluster.covariance": covariances(1, 3, 3, 1, 4)}
    down["cluster.weight"] = torch.ones(3, 3, 1)
    grads, _ = method.gradients(dict(state), cohort, step, down)
    weights = {name: value.double().numpy() for name, value in method.trained(state).items()}
    rng, seen = np.random.default_rng(0), set()
    for name, value in weights.items():
        for _ in range(3):
            place = tuple(int(rng.integers(n)) for n in value.shape)
            ends = []
            for side in (1e-5, -1e-5):
                moved = {n: v.copy() for n, v in weights.items()}
                moved[name][place] += side
                named = {n.removeprefix("model."): v for n, v in moved.items()}
                ends.append(numpy_objective(cohort, named, step, down, elbo, semantic))
            slope = (ends[0] - ends[1]) / 2e-5
            assert float(grads[name][place]) == pytest.approx(slope, rel=2e-3, abs=2e-4), name
            seen.add(name) if abs(slope) > 1e-3 else None
    assert {"filter", "model.hidden.weight", "model.latent.weight", "model.classifier.weight"} <= seen


def test_the_negative_elbo_equals_its_terms() -> None:
    """-(eq. 2): reconstruction of the drawn pairs, and KL to the standard normal, client by client."""
    clients = ragged_clients()
    cohort = Cohort(clients)
    keys = make().start(cohort)[KEYS]
    mean, logvar, step = 0.5 * numbers(0, cohort.rows, 4), 0.3 * numbers(1, cohort.rows, 4), Dropout(0.0, keys, 3)
    noise, pairs = step.draws.normal(cohort, 4, NOISE_LAYER), Pairs(cohort)
    others, expected = pairs.others(step.draws, PAIR_LAYER), 0.0
    for m in range(5):
        mu, lv, eps = (cohort.parts_of(t)[m].double().numpy() for t in (mean, logvar, noise))
        sample, first, logs = mu + np.exp(lv / 2) * eps, int(cohort.start[m]), []
        mine = (cohort.client[pairs.edges.source.long()] == m).numpy()
        for links, sign in ((pairs.edges, 1), (others, -1)):
            for u, v in zip(links.source.numpy()[mine] - first, links.target.numpy()[mine] - first, strict=True):
                logs.append(np.log(1 / (1 + np.exp(-sign * sample[u] @ sample[v]))))
        expected += -np.mean(logs) + np.mean(0.5 * (np.exp(lv) + mu**2 - 1 - lv))
    assert float(negative_elbo(cohort, mean, logvar, step)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_objective_has_three_parts(encoder: str) -> None:
    """Eq. 41 is linear in its weights; the terms on the coefficients alone are proximal steps."""
    cohort = Cohort(ragged_clients())
    state = scrambled(make(encoder=encoder), cohort)
    down = {"cluster.mean": numbers(0, 5, 3, 1, 4), "cluster.covariance": covariances(1, 5, 3, 1, 4)}
    down["cluster.weight"] = torch.ones(5, 3, 1)

    def gradient(elbo: float, semantic: float, message: dict[str, Tensor]) -> dict[str, Tensor]:
        method = make(encoder=encoder, elbo=elbo, semantic_weight=semantic)
        return method.gradients(dict(state), cohort, Dropout(0.5, state[KEYS], 2), message)[0]

    plain, with_elbo, with_semantic = gradient(0, 0, down), gradient(1, 0, down), gradient(0, 1, down)
    both = gradient(0.3, 0.2, down)
    for name in plain:
        expected = plain[name] + 0.3 * (with_elbo[name] - plain[name]) + 0.2 * (with_semantic[name] - plain[name])
        assert_near(both[name], expected, 1e-5)
    for found in (with_elbo, with_semantic):  # both act on the first layer of the classifier's network
        assert float((found["model.hidden.weight"] - plain["model.hidden.weight"]).abs().max()) > 1e-3
        # and, where the autoencoder is that network, on the filter
        moved = float((found["filter"] - plain["filter"]).abs().max())
        assert (moved > 1e-3) == (encoder == "spectral")
    silent = gradient(0, 1, {})  # nothing to align with, as in the first round
    assert all(torch.equal(silent[name], plain[name]) for name in plain)
    if encoder == "spectral":  # nothing reads the log-variances then
        assert not any(plain[f"model.encoder.{name}"].any() for name in ("label", "weight", "bias"))


class NoReads(TorchDispatchMode):
    """Fails where the host reads a value of a tensor or writes one, at which a captured round would fail."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten  # the last one takes a number of the host, as `tensor[index] = number` does
        assert func.overloadpacket not in (aten._local_scalar_dense, aten.nonzero, aten.lift_fresh), str(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("elbo", [0.0, 0.1])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_clients_read_nothing_on_the_host(encoder: str, elbo: float) -> None:
    cohort, method = Cohort(ragged_clients()), make(encoder=encoder, elbo=elbo)
    state = scrambled(method, cohort)
    _, tap = tapped(2, encoder=encoder)
    down, step = tap.downs[1], Dropout(0.5, state[KEYS], 2)

    def client_step() -> None:
        method.gradients(state, cohort, step, down)
        method.after_step(state, down)
        method.upload(state, {}, cohort, down)

    client_step()  # what is computed once may read
    with NoReads():
        client_step()
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NoReads():
        float(state["filter"].sum())


@pytest.mark.parametrize("components", [1, 3])
def test_the_server_reads_nothing_on_the_host(components: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that an accelerator captures whole rounds; and it computes the same as where the host looks."""
    method = make(components=components)
    _, tap = tapped(2, components=components)
    everyone = torch.arange(5)
    sent = {name: value.clone() for name, value in tap.ups[-1].items()}
    servers = [method.server_start()[0] for _ in range(2)]
    usual = method.aggregate(servers[0], sent, everyone, everyone)
    for module in (k_means, class_gaussians_module, subspaces):
        monkeypatch.setattr(module, "on_host", lambda tensor: False)
    with torch.device("meta"), NoReads():  # a tensor that is made without saying where has no values, and fails
        blind = method.aggregate(servers[1], sent, everyone, everyone)
        method.similarity(servers[1])
        method.diagnostics(servers[1])
    assert not method.host_server
    assert blind.keys() == usual.keys()
    for name, value in usual.items():
        assert torch.equal(blind[name], value)


# -- spectral energies and their subspaces -----------------------------------------------------------


@pytest.mark.parametrize("energy", [4, 10, 64])
def test_energies_equal_equations_9_and_10(energy: int) -> None:
    """w_k times the mean over nodes of H_k; projected by a matrix from the seed where there are more features."""
    clients = ragged_clients()
    cohort, method = Cohort(clients), make(clients, basis="monomial", order=3, energy=energy)
    coefficients, down = numbers(0, 5, 4), method.server_start()[1]
    found = method.energies(coefficients, cohort, down)
    assert found.shape == (5, 4, min(energy, 10))
    drawn = projection(int(down["projection_seed"]), 10, 4).double().numpy() if energy == 4 else np.eye(10)
    for m, client in enumerate(clients):
        a, x = normalised(client).toarray(), dense_features(client).astype(float)
        expected = np.stack([float(coefficients[m, k]) * (matrix_power(a, k) @ x).mean(0) @ drawn for k in range(4)])
        assert_near(found[m], torch.from_numpy(expected))


def test_the_projection_is_the_same_for_everyone_and_keeps_lengths() -> None:
    one, two = projection(5, 2000, 32), projection.__wrapped__(5, 2000, 32)
    assert torch.equal(one, two)
    assert not torch.equal(one, projection(6, 2000, 32))
    x = numbers(0, 200, 2000)
    ratio = (x @ one).norm(dim=1) / x.norm(dim=1)
    assert 0.9 < float(ratio.mean()) < 1.1


def structural_server(method: FedSSA, heard: list[int], groups: list[int]) -> dict[str, Tensor]:
    """A server that heard of some clients, whose energies lie in the subspaces of their groups."""
    server, _ = method.server_start()
    orders, width = server["energy"].shape[1:]
    for client, group in zip(heard, groups, strict=True):
        span = torch.linalg.qr(numbers(group, width, 2))[0]
        server["energy"][client] = (span @ numbers(100 + client, 2, orders)).T
        server["filter"][client] = numbers(client, orders)
        server["heard"][client] = True
    return server


def test_structural_clusters_are_those_of_the_subspaces() -> None:
    """Eq. 13 and 14: the mean coefficients of whoever shares the subspace; nothing for who was never heard."""
    method = make(ragged_clients((9,) * 8), structure_clusters=3)
    heard, groups = [0, 1, 2, 4, 5, 7], [0, 1, 0, 2, 1, 1]
    server = structural_server(method, heard, groups)
    receivers = torch.tensor([0, 1, 3, 4, 7])
    down = method.structural_clusters(server, receivers)
    for place, client in enumerate(receivers.tolist()):
        if client not in heard:
            assert float(down["cluster.size"][place]) == 0
            continue
        members = [c for c, g in zip(heard, groups, strict=True) if g == groups[heard.index(client)]]
        assert float(down["cluster.size"][place]) == len(members)
        assert_near(down["cluster.filter"][place], server["filter"][members].double().mean(0))
        assert all(int(server["cluster"][c]) == int(server["cluster"][client]) for c in members)
    assert server["cluster"][[3, 6]].tolist() == [-1, -1]
    similar = method.similarity(server)
    assert_near(similar, similar.T)
    assert float(similar.min()) >= -1e-6
    assert float(similar.max()) <= 1 + 1e-5
    for i, j in itertools.combinations(range(len(heard)), 2):
        assert (float(similar[heard[i], heard[j]]) > 0.99) == (groups[i] == groups[j])
    assert_near(similar.diagonal(), server["heard"].float())


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_cluster_coefficients_are_the_means_of_their_members(participation: float) -> None:
    """Over rounds, whatever clusters k-means finds; members count with what they said last."""
    training, tap = tapped(5, participation)
    last, parts = {}, [r["participants"] for r in training.records]
    parts = [list(range(5)) if p == "all" else p for p in parts]
    for r, (here, there) in enumerate(itertools.pairwise(parts)):
        last |= dict(zip(here, tap.ups[r]["filter"].double(), strict=True))
        down = tap.downs[r + 1]
        for place, client in enumerate(there):
            size = int(down["cluster.size"][place])
            if client not in last:
                assert size == 0
                continue
            candidates = [
                torch.stack([last[c] for c in members]).mean(0)
                for members in itertools.combinations(last, size)
                if client in members
            ]
            gaps = [float((down["cluster.filter"][place] - mean).abs().max()) for mean in candidates]
            assert min(gaps) < 1e-5
    last |= dict(zip(parts[-1], tap.ups[-1]["filter"].double(), strict=True))
    cluster, means = training.server["cluster"], training.server["cluster.filter"]
    said = torch.stack([last.get(m, torch.zeros(5).double()) for m in range(5)])
    for label in cluster[cluster >= 0].unique():
        members = cluster == label
        assert_near(means[members], said[members].mean(0).expand(int(members.sum()), -1))


# -- class-wise Gaussians ----------------------------------------------------------------------------


@settings(max_examples=20)
@given(seed=seeds, small=st.sampled_from([0.0, -5.0, -12.0]), width=st.sampled_from([1, 4, 16]))
def test_covariances_are_positive_definite(seed: int, small: float, width: int) -> None:
    """However few nodes and however certain the encoder: the divergence stays finite, and so do its gradients."""
    cohort = lay(odd_clients())
    mean = numbers(seed, len(cohort.train), width).requires_grad_()
    logvar = (small + 0.1 * numbers(seed + 1, len(cohort.train), width)).requires_grad_()
    own = class_gaussians(cohort, mean, logvar)
    assert not torch.linalg.cholesky_ex(own[1].detach()).info.any()
    down = {
        "cluster.mean": numbers(seed + 2, 3, 3, 1, width),
        "cluster.covariance": covariances(seed + 3, 3, 3, 1, width),
        "cluster.weight": torch.ones(3, 3, 1),
    }
    loss = semantic_loss(*own, down)
    loss.backward()
    for tensor in (loss, mean.grad, logvar.grad):
        assert torch.isfinite(tensor).all()


# -- semantic clusters -------------------------------------------------------------------------------


def semantic_server(method: FedSSA, seed: int, lacking: tuple[tuple[int, int], ...]) -> dict[str, Tensor]:
    server, _ = method.server_start()
    clients, classes, width = server["class.mean"].shape
    server["class.mean"].copy_(numbers(seed, clients, classes, width))
    server["class.covariance"].copy_(0.3 * covariances(seed + 1, clients, classes, width))
    server["class.count"].copy_(torch.randint(1, 9, (clients, classes), generator=torch.Generator().manual_seed(seed)))
    for m, c in lacking:
        server["class.mean"][m, c], server["class.covariance"][m, c] = 0.0, torch.eye(width)
        server["class.count"][m, c] = 0
    return server


def equation_6(server: dict[str, Tensor], members: list[int], c: int) -> tuple[np.ndarray, np.ndarray]:
    mean, covariance, count = (
        server[n].double().numpy()[:, c] for n in ("class.mean", "class.covariance", "class.count")
    )
    share = count[members] / count[members].sum()
    centre = sum(s * mean[m] for s, m in zip(share, members, strict=True))
    second = sum(s * (covariance[m] + np.outer(mean[m], mean[m])) for s, m in zip(share, members, strict=True))
    return centre, second - np.outer(centre, centre)


@pytest.mark.parametrize("clusters", [1, 2, 3, 20])
@pytest.mark.parametrize("seed", range(3))
def test_semantic_clusters_match_moments(seed: int, clusters: int) -> None:
    """Eq. 6: clients that are sent the same are a cluster; what they are sent are the moments of its mixture."""
    clients = ragged_clients((9,) * 7)
    method = make(clients, node_clusters=clusters)
    lacking = ((0, 1), (3, 1), (5, 2), *((m, 0) for m in range(1, 7)))  # class 0 is at client 0 only
    server = semantic_server(method, seed, lacking)
    down = method.semantic_clusters(server, torch.arange(7))
    assert down["cluster.mean"].shape == (7, 3, 1, 4)
    assert down["cluster.covariance"].shape == (7, 3, 1, 4, 4)
    for c in range(3):
        here = [m for m in range(7) if (m, c) not in lacking]
        groups: list[list[int]] = []
        for m in here:
            same = [g for g in groups if torch.equal(down["cluster.mean"][g[0], c], down["cluster.mean"][m, c])]
            (same[0] if same else groups.append([]) or groups[-1]).append(m)
        assert len(groups) <= clusters
        assert clusters < 20 or len(groups) == len(here)
        for members in groups:
            centre, spread = equation_6(server, members, c)
            for m in members:
                assert_near(down["cluster.mean"][m, c, 0], torch.from_numpy(centre))
                assert_near(down["cluster.covariance"][m, c, 0], torch.from_numpy(spread))
        assert down["cluster.weight"][:, c, 0].tolist() == [float(m in here) for m in range(7)]
    assert not torch.linalg.cholesky_ex(down["cluster.covariance"]).info.any()
    some = method.semantic_clusters(server, torch.tensor([5, 2]))
    for name in down:
        assert torch.equal(some[name], down[name][[5, 2]])


def test_clients_that_are_alike_in_a_class_share_a_cluster() -> None:
    clients = ragged_clients((9,) * 6)
    method = make(clients, node_clusters=2)
    server = semantic_server(method, 0, ())
    groups = torch.tensor([[0, 0, 1], [0, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1]])  # differ class by class
    server["class.mean"].copy_(20.0 * groups.unsqueeze(-1) + 0.1 * numbers(1, 6, 3, 4))
    down = method.semantic_clusters(server, torch.arange(6))
    for m, c in itertools.product(range(6), range(3)):
        members = torch.nonzero(groups[:, c] == groups[m, c]).ravel().tolist()
        assert_near(down["cluster.mean"][m, c, 0], torch.from_numpy(equation_6(server, members, c)[0]))


def test_several_components_describe_the_same_cluster() -> None:
    """Table 9: the mixture's moments are those of the one Gaussian; its shares sum to one."""
    clients = ragged_clients((9,) * 7)
    lacking = ((0, 1), (3, 1), (5, 2))
    one, three = make(clients, node_clusters=2), make(clients, node_clusters=2, components=3)
    server = semantic_server(one, 0, lacking)
    single, several = (method.semantic_clusters(dict(server), torch.arange(7)) for method in (one, three))
    assert several["cluster.mean"].shape == (7, 3, 3, 4)
    share = several["cluster.weight"].double()
    assert_near(share.sum(-1), single["cluster.weight"][..., 0])
    assert bool((share >= 0).all())
    assert bool(((share > 0).sum(-1) > 1).any())
    for m, c in lacking:
        assert not share[m, c].any()
    mean, covariance = several["cluster.mean"].double(), several["cluster.covariance"].double()
    centre = torch.einsum("mcj,mcjd->mcd", share, mean)
    second = torch.einsum("mcj,mcjde->mcde", share, covariance + mean.unsqueeze(-1) * mean.unsqueeze(-2))
    here = single["cluster.weight"][..., 0] > 0
    assert_near(centre[here], single["cluster.mean"][:, :, 0][here].double())
    spread = second - centre.unsqueeze(-1) * centre.unsqueeze(-2)
    assert_near(spread[here], single["cluster.covariance"][:, :, 0][here].double())
    assert not torch.linalg.cholesky_ex(several["cluster.covariance"]).info.any()


def test_the_weights_of_eq_6_are_training_nodes_of_the_class() -> None:
    training, tap = tapped(3, node_clusters=1)
    count = torch.from_numpy(np.stack([known_labels(c).sum(0) for c in training.engine.parts[0].cohort.members]))
    for up, down in zip(tap.ups[:-1], tap.downs[1:], strict=True):
        assert_near(up["class.count"], count)
        share = count / count.sum(0)
        expected = torch.einsum("mc,mcd->cd", share, up["class.mean"].double())
        assert_near(down["cluster.mean"][:, :, 0], expected.expand(5, -1, -1))


@pytest.mark.parametrize("seed", range(3))
def test_semantic_loss_is_a_sum_of_divergences(seed: int) -> None:
    mean, covariance = numbers(seed, 4, 3, 5), covariances(seed + 1, 4, 3, 5)
    count = torch.tensor([[3.0, 1.0, 0.0], [2.0, 2.0, 2.0], [0.0, 0.0, 0.0], [1.0, 5.0, 1.0]])
    down = {
        "cluster.mean": numbers(seed + 2, 4, 3, 1, 5),
        "cluster.covariance": covariances(seed + 3, 4, 3, 1, 5),
        "cluster.weight": torch.ones(4, 3, 1),
    }
    down["cluster.weight"][1, 2] = 0.0  # the server knows of no such class
    expected = 0.0
    for m, c in itertools.product(range(4), range(3)):
        if count[m, c] and down["cluster.weight"][m, c, 0]:
            own = MultivariateNormal(mean[m, c].double(), covariance[m, c].double())
            other = MultivariateNormal(
                down["cluster.mean"][m, c, 0].double(), down["cluster.covariance"][m, c, 0].double()
            )
            expected += float(kl_divergence(own, other))
    assert float(semantic_loss(mean, covariance, count, down)) == pytest.approx(expected, rel=1e-4)
    same = down | {"cluster.mean": mean.unsqueeze(2), "cluster.covariance": covariance.unsqueeze(2)}
    assert float(semantic_loss(mean, covariance, count, same)) == pytest.approx(0.0, abs=1e-4)
    assert float(semantic_loss(mean, covariance, torch.zeros(4, 3), down)) == 0.0


def test_semantic_loss_to_several_components() -> None:
    """-log sum_j w_j exp(-KL_j)."""
    mean, covariance, count = numbers(0, 2, 2, 3), covariances(1, 2, 2, 3), torch.ones(2, 2)
    weight = torch.tensor([[[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    down = {
        "cluster.mean": numbers(2, 2, 2, 3, 3),
        "cluster.covariance": covariances(3, 2, 2, 3, 3),
        "cluster.weight": weight,
    }
    expected = 0.0
    for m, c in ((0, 0), (0, 1), (1, 0)):
        own = MultivariateNormal(mean[m, c].double(), covariance[m, c].double())
        parts = [
            float(w) * math.exp(-float(kl_divergence(own, MultivariateNormal(mu.double(), s.double()))))
            for w, mu, s in zip(weight[m, c], down["cluster.mean"][m, c], down["cluster.covariance"][m, c], strict=True)
        ]
        expected -= math.log(sum(parts))
    assert float(semantic_loss(mean, covariance, count, down)) == pytest.approx(expected, rel=1e-4)


# -- proximal steps ----------------------------------------------------------------------------------

GRID = np.linspace(-3, 3, 600_001)


@pytest.mark.parametrize(("pull", "l1", "l2"), [(0.4, 0.0, 0.0), (0.0, 0.6, 0.0), (0.0, 0.0, 0.8), (0.3, 0.2, 0.5)])
def test_after_a_step_coefficients_minimise_their_terms(pull: float, l1: float, l2: float) -> None:
    """Eq. 15 and then eq. 16, each the least of 1/2 (w - v)^2 + lr * term, found on a grid."""
    lr = 0.5
    method = make(ragged_clients(), order=5, filter_lr=lr, structural_weight=pull, l1=l1, l2=l2)
    before = torch.tensor([[-1.2, -0.31, 0.0, 0.05, 0.4, 1.7]]).repeat(5, 1)
    target = torch.tensor([[-0.9, 0.4, 0.1, 0.05, 0.45, -0.6]]) * torch.tensor([[1.0], [0.0], [-1.0], [1.0], [0.5]])
    sizes = torch.tensor([2.0, 1.0, 5.0, 0.0, 3.0])  # client 3 has no cluster
    state = {"filter": before.clone(), "model.hidden.bias": torch.ones(5, 2)}
    method.after_step(state, {"cluster.filter": target, "cluster.size": sizes})
    for m, k in itertools.product(range(5), range(6)):
        v = float(before[m, k])
        if sizes[m]:
            v = GRID[np.argmin(0.5 * (GRID - v) ** 2 + lr * pull * np.abs(GRID - float(target[m, k])))]
        w = GRID[np.argmin(0.5 * (GRID - v) ** 2 + lr * (l1 * np.abs(GRID) + l2 / 2 * GRID**2))]
        assert float(state["filter"][m, k]) == pytest.approx(w, abs=3e-5)
    assert bool((state["model.hidden.bias"] == 1).all())
    # The first round knows no clusters.
    alone = {"filter": before.clone()}
    method.after_step(alone, {})
    without = make(ragged_clients(), order=5, filter_lr=lr, structural_weight=0.0, l1=l1, l2=l2)
    same = {"filter": before.clone()}
    without.after_step(same, {"cluster.filter": target, "cluster.size": sizes})
    assert_near(alone["filter"], same["filter"], 1e-6)


def test_a_strong_pull_makes_a_cluster_agree() -> None:
    _, tap = tapped(3, structural_weight=1e3, structure_clusters=1, l1=0.0, l2=0.0)
    mean = tap.ups[1]["filter"].mean(0)
    assert_near(tap.ups[2]["filter"], mean.expand(5, -1))
    spread = tapped(3, structural=False)[0].engine.parts[0].state["filter"]
    assert float(spread.std(0).max()) > 1e-3


# -- what crosses ------------------------------------------------------------------------------------


def test_a_class_without_a_node_is_sent_as_what_everyone_knows() -> None:
    """Mean 0, covariance I: under differential privacy it uses up nothing of the norm; nor do equal coefficients."""
    clients = ragged_clients()
    y, split = clients[0].graph.y, clients[0].split.copy()
    split[(y == 2) & (split == TRAIN)] = VAL
    clients[0] = replace(clients[0], split=split)
    method = make(clients)
    known = method.public_start()
    _, tap = tapped_run(method, clients, 3, 1.0)
    for up in tap.ups:
        assert up["class.count"][0, 2] == 0
        for name in ("class.mean", "class.covariance"):
            assert known[name].shape == up[name].shape[1:]
            assert torch.equal(up[name][0, 2], known[name][2])
    assert torch.equal(known["class.covariance"], torch.eye(4).expand(3, 4, 4))
    assert torch.equal(known["filter"], torch.full((5,), 1.0 / 5))
    assert not set(known) & {spec.name for spec in FedSSA.downloads}  # which would take its place


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(("semantic", "structural"), list(itertools.product([True, False], repeat=2)))
def test_what_crosses(semantic: bool, structural: bool, participation: float) -> None:
    training, tap = tapped(3, participation, semantic=semantic, structural=structural)
    up = (STRUCTURAL if structural else set()) | (SEMANTIC if semantic else set())
    down = ({"cluster.filter", "cluster.size"} if structural else set()) | (
        {"cluster.mean", "cluster.covariance", "cluster.weight"} if semantic else set()
    )
    assert all(set(message) == up for message in tap.ups)
    seed = {"projection_seed"} if structural else set()
    assert [set(message) for message in tap.downs] == [seed] + [down | seed] * 2
    for specs, messages in ((FedSSA.uploads, tap.ups), (FedSSA.downloads, tap.downs)):
        for message in messages:
            assert all(declared(specs, name) is not None for name in message)
            assert not any(name.startswith("model.") for name in message)
    weights = [w for name, w in training.engine.parts[0].state.items() if name.startswith("model.")]
    sent = [tensor for message in tap.ups + tap.downs for tensor in message.values()]
    assert not any(w.shape == t.shape and torch.equal(w, t) for w in weights for t in sent)
    if not (semantic or structural):
        assert training.progress.upload_bytes == 0
    assert (training.method.similarity(training.server) is None) == (not structural)


def test_no_weight_is_ever_declared() -> None:
    for specs in (FedSSA.uploads, FedSSA.downloads):
        assert declared(specs, "model.hidden.weight") is None
        assert not any("*" in spec.name for spec in specs)


def test_without_sharing_clients_train_alone() -> None:
    """What other clients are does not matter then; it does with sharing."""
    clients = ragged_clients()
    for sharing in (False, True):
        whole = tapped(3, semantic=sharing, structural=sharing)[0].engine.personal()
        others = [clients[0], *ragged_clients(seed=7)[1:]]
        changed = tapped(3, clients=others, semantic=sharing, structural=sharing)[0].engine.personal()
        same = all(torch.allclose(whole[name][0], changed[name][0], atol=1e-5) for name in whole)
        assert same != sharing


def test_a_round_costs_kilobytes() -> None:
    """Cora's sizes: a client sends and is sent less than 20 kB together; its weights alone are 730 kB."""
    rng = np.random.default_rng(0)
    clients = [random_client(rng, m, 12, features=1433, classes=7, filled=0.02, sparse=True) for m in range(3)]
    for client in clients:
        client.split[:3] = TRAIN
        client.graph.y[:3] = rng.integers(0, 7, 3)
    training = make_training(make_method("fedssa", clients, make_task(clients), hidden=128), clients, Plan(3))
    training.run()
    assert training.method.settings.order == 10
    weights = sum(w[0].numel() * 4 for n, w in training.engine.parts[0].state.items() if n.startswith("model."))
    assert weights > 700_000
    for record in training.records:
        up, down = (sum(record[key].values()) / 3 for key in ("bytes_up", "bytes_down"))
        assert up + down < 20_000
        assert not any(name.startswith("model.") for key in ("bytes_up", "bytes_down") for name in record[key])
    assert up == 4 * (11 + 11 * 32 + 7 * (16 + 16 * 16 + 1))
    assert down == 8 + 4 * (11 + 1 + 7 * (16 + 16 * 16 + 1))


# -- any clients -------------------------------------------------------------------------------------


def lacking_a_class() -> list[Client]:
    """Class 2 is nowhere at client 0, and at client 1 only among nodes that do not train; no client trains on class 1."""
    clients = ragged_clients((25, 18, 31, 9))
    y, split = clients[0].graph.y.copy(), clients[1].split.copy()
    y[y == 2] = 0
    split[(clients[1].graph.y == 2) & (split == TRAIN)] = VAL
    clients[0] = Client(0, replace(clients[0].graph, y=y), clients[0].split)
    clients[1] = Client(1, clients[1].graph, split)
    out = []
    for client in clients:
        split = client.split.copy()
        split[(client.graph.y == 1) & (split == TRAIN)] = VAL
        split[np.flatnonzero(client.graph.y == 0)[0]] = TRAIN
        out.append(Client(client.id, client.graph, split))
    return out


def without_edges() -> list[Client]:
    clients = ragged_clients((12, 14))
    empty = np.zeros((2, 0), dtype=np.int64)
    return [Client(c.id, replace(c.graph, edges=empty), c.split) for c in clients]


ODD = {
    "lacking a class": lacking_a_class,
    "one training node of a class": odd_clients,
    "fewer clients than clusters": lambda: ragged_clients((12, 14)),
    "no edges": without_edges,
}


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("kind", ODD)
def test_a_few_rounds_of_odd_clients(kind: str, components: int) -> None:
    clients = ODD[kind]()
    for participation in (1.0, 0.5):
        training, tap = tapped(4, participation, clients, components=components, latent=6)
        assert all(math.isfinite(record["train_loss"]) for record in training.records)
        for message in tap.ups + tap.downs:
            assert all(bool(torch.isfinite(tensor.double()).all()) for tensor in message.values())


def test_a_federation_of_one() -> None:
    training, tap = tapped(3, 1.0, ragged_clients((14,)), components=3)
    assert all(math.isfinite(record["train_loss"]) for record in training.records)
    for up, down in zip(tap.ups[:-1], tap.downs[1:], strict=True):  # its clusters are itself
        assert_near(down["cluster.filter"], up["filter"])
        assert_near(down["cluster.mean"][:, :, 0], up["class.mean"])
        assert_near(down["cluster.covariance"][:, :, 0], up["class.covariance"])


@pytest.mark.parametrize("basis", KINDS)
def test_every_basis_learns(basis: str) -> None:
    clients = ragged_clients((60, 45, 80), seed=1)
    majority = make_training(make_method("majority", clients), clients, Plan(1))
    majority.run()
    training = make_training(make(clients, basis=basis, hidden=16, lr=0.02), clients, Plan(15))
    start = training.engine.parts[0].state["filter"].clone()
    training.run()
    assert training.records[-1]["test"] > majority.records[-1]["test"] + 0.1
    assert training.records[-1]["train_loss"] < training.records[0]["train_loss"] - 0.1
    assert float((training.engine.parts[0].state["filter"] - start).abs().max()) > 0.05


@pytest.mark.parametrize("structural", [True, False])
def test_findings_have_the_documented_shapes(structural: bool) -> None:
    training, _ = tapped(3, structural=structural)
    shapes = {"coefficients": (5, 5), "class_means": (5, 3, 4), "class_counts": (5, 3), "class_separation": ()}
    if structural:
        shapes |= {"cluster_coefficients": (5, 5), "structural_cluster": (5,)}
    assert {name: tuple(tensor.shape) for name, tensor in training.findings.items()} == shapes
    state = training.engine.state()
    assert torch.equal(training.findings["coefficients"], state["filter"])
    assert torch.equal(training.findings["class_means"], state["class.mean"])
    said = (state[name] for name in ("class.mean", "class.covariance", "class.count"))
    assert torch.equal(training.findings["class_separation"], class_separation(*said))
    cohort = training.engine.parts[0].cohort
    counts = torch.from_numpy(np.stack([known_labels(c).sum(0) for c in cohort.members]))
    assert_near(training.findings["class_counts"], counts)


def test_the_diagnostic_is_of_what_was_uploaded() -> None:
    training, tap = tapped(3)
    for record, up in zip(training.records, tap.ups, strict=True):
        said = (up[name].cpu() for name in ("class.mean", "class.covariance", "class.count"))
        assert record["diagnostics"] == {"class_separation": pytest.approx(float(class_separation(*said)), rel=1e-5)}
    silent = make(semantic=False)
    assert silent.diagnostics(silent.server_start()[0]) == {}


def test_classes_of_the_spectral_encoder_lie_apart() -> None:
    """Its latent variables are what the classifier reads; the separate encoder's carry no class."""
    clients = ragged_clients((60, 45, 80), seed=1)
    apart = {}
    for encoder in ENCODERS:
        calm = {"dropout": 0.0, "input_dropout": 0.0, "elbo": 0.0}
        training = make_training(make(clients, encoder=encoder, hidden=16, lr=0.03, **calm), clients, Plan(30))
        training.run()
        apart[encoder] = float(training.findings["class_separation"])
    assert apart["spectral"] > 1.0 > apart["separate"]
