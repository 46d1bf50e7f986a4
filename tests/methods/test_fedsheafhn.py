"""FedSheafHN's steps against plain autograd, PyTorch's Adam and PyTorch Geometric, and what its server makes of clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedquilt
from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import advanced
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import declared
from fedquilt.methods.base import State
from fedquilt.methods.base_adam import KEYS
from fedquilt.methods.fedsheafhn import (
    EMBEDDING,
    HEARD,
    NET,
    ORDER,
    TAILORED,
    UPDATE,
    VECTORS,
    FedSheafHN,
    inverse_spread,
    personal_share,
    shuffled,
)
from fedquilt.nn.hypernetwork import LAST
from fedquilt.nn.models import common_start
from fedquilt.nn.optim import FIRST, SECOND, STEP
from fedquilt.runs.folder import SeedFolder
from fedquilt.scenarios.newcomers import FrozenServer
from fedquilt.studies.catalogue_files import study_names
from fedquilt.studies.spec import find_study
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near, numbers
from support.federations import (
    PlainGcn,
    Wiretap,
    assert_same,
    make_method,
    make_task,
    make_training,
    ragged_clients,
    tapped_run,
    without_seconds,
)

GRAPH_LAYERS = ("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias")
UPDATES = {UPDATE + name for name in GRAPH_LAYERS}
EVERYONE = torch.arange(5)
NETWORKS: list[dict[str, Any]] = [
    {"diffusion": "gcn"},
    {"diffusion": "gat"},
    {"diffusion": "none"},
    {"diffusion": "none", "attention": False},
    {"attention": False},
    {"client_vector": "one-hot"},
    {"client_vector": "one-hot", "diffusion": "none", "attention": False},
    {"stalk": 1, "diffusion_steps": 1},
    {"scaling": "centred"},
    {"scaling": "none"},
    {"shuffle": "once"},
    {"shuffle": "every-round"},
    {"generates": "model"},
]
VARIANTS: list[dict[str, Any]] = [
    *NETWORKS,
    {"refresh": 0},
    {"refresh": 1},
    {"fresh_moments": False},
    {"model": "sage"},
    {"reading": "outputs"},
]


def named(settings: dict[str, Any]) -> str:
    return ",".join(f"{k}={v}" for k, v in settings.items())


def make(clients: list[Client] | None = None, **settings: Any) -> FedSheafHN:
    clients = clients or ragged_clients()
    small = {"width": 16, "warmup": 3, "refresh": 2, "newcomer_epochs": 4}
    return make_method("fedsheafhn", clients, make_task(clients, epochs=2), **(small | settings))


def tapped(
    rounds: int = 4, participation: float = 1.0, clients: list[Client] | None = None, **settings: Any
) -> tuple[Training, Wiretap]:
    clients = clients or ragged_clients()
    return tapped_run(make(clients, **settings), clients, rounds, participation)


def changes(method: FedSheafHN, count: int, seed: int = 0) -> dict[str, Tensor]:
    """What training might add to the weights of `count` clients, by the names of the uploads."""
    return {UPDATE + n: numbers(seed + i, count, *s) for i, (n, s) in enumerate(method.generated.items())}


def heard(method: FedSheafHN, embeddings: Tensor | None = None) -> State:
    """A server that everyone sent an embedding to."""
    server, _ = method.server_start()
    embeddings = numbers(9, method.context.clients, method.settings.hidden) if embeddings is None else embeddings
    method.aggregate(server, {EMBEDDING: embeddings}, EVERYONE, EVERYONE)
    return server


def busy(method: FedSheafHN) -> State:
    """A server in the middle of its work, in double precision: no parameter is zero, nor are Adam's moments."""
    server = {n: v.double() if v.is_floating_point() and n != STEP else v for n, v in heard(method).items()}
    described = method.described
    method.described = lambda embeddings: described(embeddings).double()  # type: ignore[method-assign]
    for i, (name, value) in enumerate(server.items()):
        if name.startswith(NET):
            value += 0.2 * numbers(i, *value.shape)
            if "mlp" in name and "bias" in name:
                value += 0.5
    method.learn(server, flat(changes(method, 5, 70)), EVERYONE)
    return server


def flat(uploads: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(UPDATE): value.flatten(1).double() for name, value in uploads.items()}


def copied(state: State) -> State:
    return {name: value.clone() for name, value in state.items()}


# -- at the client -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [True, False])
def test_clients_train_as_plain_models_do(fresh: bool) -> None:
    """PyTorch Geometric and torch.optim.Adam: a warm-up of its own length, then `epochs` from what the server wrote.

    What is uploaded is trained - received, and the embedding the node mean of the second layer's output before its ReLU.
    """
    clients = ragged_clients()
    method = make(clients, warmup=4, epochs=2, refresh=2, dropout=0.0, fresh_moments=fresh)
    training = make_training(method, clients, Plan(4))
    tap, found = Wiretap(training.engine), []
    training.on_round = lambda record: found.append(copied(training.engine.personal()))
    start = {name: w[0] for name, w in common_start(method.shapes(), 3, 1, torch.device("cpu")).items()}
    training.run()
    for m, client in enumerate(clients):
        net = PlainGcn(client, start)
        adam = torch.optim.Adam(net.parameters(), lr=0.01)
        for r, (down, up) in enumerate(zip(tap.downs, tap.ups, strict=True)):
            received = {name.removeprefix("model."): value[m] for name, value in down.items()}
            assert set(received) == (set(GRAPH_LAYERS) if r else set())
            net.load(received)
            if fresh:
                adam = torch.optim.Adam(net.parameters(), lr=0.01)
            for _ in range(2 if r else 4):
                adam.zero_grad()
                torch.nn.functional.cross_entropy(net()[net.train_nodes], net.y[net.train_nodes]).backward()
                adam.step()
            for name, value in net.weights().items():
                assert_near(found[r][name][m], value, 1e-4)
            for name, value in received.items():
                assert torch.equal(up[UPDATE + name][m], found[r][name][m] - value)
                assert float(up[UPDATE + name][m].abs().max()) > 1e-3
            if EMBEDDING in up:
                with torch.no_grad():
                    h = net.conv2(torch.relu(net.conv1(net.x, net.edges)), net.edges)
                assert_near(up[EMBEDDING][m], h.mean(0), 1e-4)
                assert not torch.allclose(h.mean(0), h.relu().mean(0), atol=1e-3)


@pytest.mark.parametrize(("fresh", "steps"), [(True, 2), (False, 7)])
def test_moments_start_afresh_where_they_are_told_to(fresh: bool, steps: int) -> None:
    training, _ = tapped(3, fresh_moments=fresh)
    assert training.engine.state()[STEP].tolist() == [steps] * 5


def test_no_step_is_taken_twice() -> None:
    """Dropout is drawn from the step's number: the warm-up's, each round's and a newcomer's do not overlap."""
    clients = ragged_clients()
    method, seen = make(clients, warmup=4, epochs=2, newcomer_epochs=3), []
    gradients = method.gradients

    def watched(state: State, cohort: Cohort, dropout: Any, down: Any) -> Any:
        # The keys stand for the round's first step.
        first = torch.nonzero(torch.stack([advanced(state[KEYS], c).eq(dropout.keys).all() for c in torch.arange(20)]))
        seen.append(int(first) + dropout.step)
        assert dropout.rate == 0.5
        return gradients(state, cohort, dropout, down)

    method.gradients = watched  # type: ignore[method-assign]
    training = make_training(method, clients, Plan(4))
    training.run()
    assert seen == list(range(4 + 3 * 2))
    seen.clear()
    server = FrozenServer(method, method.newcomer_state(training.server), torch.device("cpu"), "40/30/30", False, None)
    server.admit([replace(ragged_clients(seed=1)[0], id=5)])
    assert seen == list(range(4 + 3))


def test_dropout_draws_differ_from_round_to_round() -> None:
    """Two rounds from the same weights with the same moments part; without dropout they do not."""
    for dropout in (0.5, 0.0):
        method = make(dropout=dropout)
        cohort = Cohort(ragged_clients())
        down = {
            f"model.{n}": w
            for n, w in common_start(method.shapes(), 3, 5, torch.device("cpu")).items()
            if n in GRAPH_LAYERS
        }
        one, two = (method.local_update(method.start(cohort), cohort, down, r).personal for r in (1, 2))
        same = [torch.equal(one[name], two[name]) for name in GRAPH_LAYERS]
        assert same == [dropout == 0] * 4


# -- what crosses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refresh", "rounds"), [(0, [0]), (1, [0, 1, 2, 3, 4, 5, 6]), (2, [0, 2, 4, 6]), (3, [0, 3, 6]), (5, [0, 5])]
)
def test_embeddings_are_sent_at_first_and_every_few_rounds(refresh: int, rounds: list[int]) -> None:
    _, tap = tapped(7, refresh=refresh)
    assert [r for r, up in enumerate(tap.ups) if EMBEDDING in up] == rounds


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("settings", [{}, *VARIANTS], ids=named)
def test_only_what_is_declared_crosses_and_the_classifier_never(settings: dict[str, Any], participation: float) -> None:
    training, tap = tapped(4, participation, **settings)
    layers = set(training.method.generated)
    assert ("classifier.weight" in layers) == (settings.get("generates") == "model")
    for r, (down, up) in enumerate(zip(tap.downs, tap.ups, strict=True)):
        assert set(down) == ({f"model.{name}" for name in layers} if r else set())
        warming = r == 0 and training.method.sends(EMBEDDING)
        assert set(up) - {EMBEDDING} == (set() if warming else {UPDATE + name for name in layers})
        assert training.method.sends(EMBEDDING) or EMBEDDING not in up
        assert all(declared(FedSheafHN.downloads, name) for name in down)
        assert all(declared(FedSheafHN.uploads, name) for name in up)
        assert all(bool(torch.isfinite(tensor).all()) for tensor in (*down.values(), *up.values()))
    assert declared(FedSheafHN.uploads, "model.classifier.weight") is None
    classifiers = training.engine.personal()["classifier.weight"]
    assert len({tuple(w.ravel().tolist()) for w in classifiers}) == 5  # each its own
    assert all(np.isfinite(record["train_loss"]) for record in training.records)
    shape = training.method.similarity(training.server).shape
    assert shape == (5, 5)


def test_bytes_by_hand() -> None:
    training, _ = tapped(3, hidden=8, refresh=2)
    numbers_sent = {"conv1.weight": 10 * 8, "conv1.bias": 8, "conv2.weight": 8 * 8, "conv2.bias": 8}
    layers = {name: 4 * 5 * count for name, count in numbers_sent.items()}
    embedding = {EMBEDDING: 4 * 5 * 8}
    updates = {UPDATE + name: count for name, count in layers.items()}
    assert [r["bytes_up"] for r in training.records] == [embedding, updates, updates | embedding]
    models = {f"model.{name}": count for name, count in layers.items()}
    assert [r["bytes_down"] for r in training.records] == [{}, models, models]


# -- the server's step -------------------------------------------------------------------------------


@pytest.mark.parametrize("senders", [[0, 1, 2, 3, 4], [1, 3], [2]], ids=str)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"server_step": 0.3, "server_lr": 0.02, "personal_step": 0.7},
        {"personal_step": 0.0},
        {"reading": "outputs", "server_step": 0.7},
        *NETWORKS,
    ],
    ids=named,
)
def test_the_step_is_that_of_plain_autograd(settings: dict[str, Any], senders: list[int]) -> None:
    """sum_i |generated_i - trained_i|^2 / 2: a gradient step of the last layer, one of torch.optim.Adam of the others."""
    method = make(**settings)
    s, server, who = method.settings, busy(method), torch.tensor(senders)
    added = flat(changes(method, len(senders)))
    params = {name: value.clone().requires_grad_() for name, value in method.parameters(server).items()}
    vectors = method.described(server[VECTORS])
    represented = method.net.represent(params, vectors[server[ORDER]] if "shuffle" in settings else vectors)
    literal = s.reading == "outputs"
    read = (represented if literal else represented - represented.mean(0))[who]
    written = method.net.generate(params, read)
    loss = torch.zeros(())
    for name, w in written.items():
        trained = w.detach().flatten(1) + added[name]
        loss = loss + (w.flatten(1) - trained).square().sum() / 2
    loss.backward()
    widest = float(np.linalg.norm(read.detach().numpy(), 2)) ** 2
    matrix = (
        s.personal_step / widest if read.square().sum() > 1e-12 else 0.0
    )  # after a graph convolution clients are equal
    rates = {"weight": matrix, "bias": s.server_step / len(senders)}
    if literal:
        with_one = np.concatenate([read.detach().numpy(), np.ones((len(senders), 1))], axis=1)
        rates = dict.fromkeys(rates, s.server_step / float(np.linalg.norm(with_one, 2)) ** 2)
    trunk = {name: p for name, p in params.items() if not name.startswith(LAST)}
    adam = torch.optim.Adam(list(trunk.values()), lr=s.server_lr)
    for name, p in trunk.items():
        moments = (server[f"{part}{NET}{name}"].clone() for part in (FIRST, SECOND))
        adam.state[p] = dict(zip(("exp_avg", "exp_avg_sq"), moments, strict=True)) | {"step": torch.tensor(1.0)}
    adam.step()
    method.learn(server, added, who)
    found = method.parameters(server)
    for name, p in params.items():
        expected = p.detach()
        if name.startswith(LAST):
            expected = expected - rates[name.rsplit(".", 1)[1]] * p.grad
        assert float((found[name] - expected).abs().max()) < 1e-9, name
    assert server[STEP].tolist() == [2.0]


def test_nothing_of_the_trunk_moves_before_the_last_layer_has() -> None:
    """At first everyone is written the same whatever the trunk says, so its gradient is zero; then it is not."""
    method = make()
    server = heard(method)
    before = copied(server)
    for step in (1, 2):
        method.aggregate(server, changes(method, 5, step), EVERYONE, EVERYONE)
        for name in method.net.trunk_shapes():
            assert torch.equal(server[NET + name], before[NET + name]) == (step == 1), name


@pytest.mark.parametrize("step", [1.0, 0.25])
def test_clients_alike_move_by_the_mean_change(step: float) -> None:
    method = make(server_step=step)
    server = heard(method, numbers(0, 1, 8).expand(5, -1))
    before = method.write(method.parameters(server), method.described(server[VECTORS]), EVERYONE)
    added = changes(method, 5)
    after = method.aggregate(server, added, EVERYONE, EVERYONE)
    for name in GRAPH_LAYERS:
        expected = before[f"model.{name}"][0] + step * added[UPDATE + name].mean(0)
        assert_near(after[f"model.{name}"], expected.expand(5, *expected.shape), 1e-5)


def distances(method: FedSheafHN, sign: float, rounds: int = 25) -> list[float]:
    """Between what is generated and fixed weights of each client's own, round by round, as clients report it."""
    server, out = heard(method), []
    down = method.aggregate(server, {EMBEDDING: numbers(9, 5, 8)}, EVERYONE, EVERYONE)
    target = {name: w + numbers(i, *w.shape) for i, (name, w) in enumerate(down.items())}
    for _ in range(rounds):
        apart = {name.removeprefix("model."): target[name] - w for name, w in down.items()}
        out.append(sum(float(d.square().sum()) for d in apart.values()))
        uploads = {UPDATE + name: sign * d for name, d in apart.items()}
        down = method.aggregate(server, uploads, EVERYONE, EVERYONE)
    return out


@pytest.mark.parametrize("settings", [{}, {"client_vector": "one-hot"}, {"diffusion": "none"}], ids=named)
def test_generated_weights_move_toward_trained_ones(settings: dict[str, Any]) -> None:
    """Along the change: toward. Against it, as the paper has it: away."""
    falling, rising = (distances(make(**settings), sign) for sign in (1.0, -1.0))
    assert falling[0] == rising[0]
    assert np.diff(falling).max() < 0
    assert np.diff(rising).min() > 0
    assert falling[-1] < 0.75 * falling[0]
    assert rising[-1] > 2 * rising[0]


def test_what_one_client_learns_helps_those_like_it() -> None:
    """Clients 0 and 1 have nearly one embedding; only client 0 trains."""
    method = make(diffusion="none", attention=False)
    embeddings = numbers(0, 5, 8)
    embeddings[1] = embeddings[0] + 0.01 * embeddings[1]
    server = heard(method, embeddings)
    before = method.write(method.parameters(server), method.described(server[VECTORS]), EVERYONE)
    after = method.aggregate(server, changes(method, 1), torch.tensor([0]), EVERYONE)
    moved = sum((after[name] - before[name]).flatten(1).square().sum(1) for name in after).sqrt()
    assert float(moved[1]) == pytest.approx(float(moved[0]), rel=0.05)
    assert float(moved[2:].max()) < 0.95 * float(moved[0])
    assert float(method.similarity(server)[0, 1]) > float(method.similarity(server)[0, 2:].max())


@pytest.mark.parametrize("step", [0.0, 0.1, 1.0])
def test_how_personal_weights_are_is_set(step: float) -> None:
    method = make(personal_step=step)
    for name, w in after_changes(method, numbers(0, 5, 8)).items():
        mean, start = (
            w.mean(0),
            common_start(method.shapes(), 3, 1, torch.device("cpu"))[name.removeprefix("model.")][0],
        )
        apart = float((w - mean).flatten(1).norm(dim=1).mean() / (mean - start).norm())
        assert (apart == pytest.approx(0.0, abs=1e-6)) if not step else (0.1 * step < apart < 10 * step)


@pytest.mark.parametrize("generates", ["layers", "model"])
def test_without_a_personal_step_everyone_is_written_the_unweighted_mean(generates: str) -> None:
    """FedPer with an unweighted mean, or FedAvg with one: what is written is the mean of what the clients arrived at."""
    training, tap = tapped(5, personal_step=0.0, generates=generates)
    names = set(training.method.model.shapes()) if generates == "model" else set(GRAPH_LAYERS)
    for up, down, after in zip(tap.ups[1:-1], tap.downs[1:-1], tap.downs[2:], strict=True):
        assert set(down) == {f"model.{name}" for name in names}
        for name in names:
            arrived = down[f"model.{name}"] + up[UPDATE + name]
            assert_near(after[f"model.{name}"], arrived.mean(0).expand_as(arrived), 1e-5)
    assert all(record["diagnostics"]["personal_share"] < 1e-5 for record in training.records)


def test_diagnostics_by_hand() -> None:
    """NumPy, from what the clients are written and the vectors that they are written from."""
    training, _ = tapped(5, scaling="centred", personal_step=0.5)
    method, server = training.method, training.server
    down = method.write(method.parameters(server), method.vectors(server), EVERYONE)
    start = common_start(method.shapes(), 3, 1, torch.device("cpu"))
    flat_down = np.concatenate([down[f"model.{n}"].flatten(1).numpy() for n in GRAPH_LAYERS], axis=1)
    flat_start = np.concatenate([start[n][0].flatten().numpy() for n in GRAPH_LAYERS])
    mean = flat_down.mean(0)
    share = np.sqrt((np.linalg.norm(flat_down - mean, axis=1) ** 2).mean()) / np.linalg.norm(mean - flat_start)
    found = {name: float(value) for name, value in method.diagnostics(server).items()}
    assert found["personal_share"] == pytest.approx(share, rel=1e-3)
    params = method.parameters(server)
    vectors = method.described(server[VECTORS])
    for name, rows in (("similarity_median", vectors), ("output_similarity", method.net.represent(params, vectors))):
        unit = rows.numpy() / np.linalg.norm(rows.numpy(), axis=1, keepdims=True)
        pairs = sorted((unit @ unit.T)[np.triu_indices(5, 1)])
        assert found[name] == pytest.approx(pairs[4], abs=1e-5)  # the lower one of the two in the middle
    before = torch.nn.functional.elu(vectors @ params["in.weight"] + params["in.bias"])
    after = method.net.step(params, method.net.step(params, before, 0), 1)
    change = np.linalg.norm((after - before).numpy()) / np.linalg.norm(before.numpy())
    assert found["diffusion_change"] == pytest.approx(change, rel=1e-4)
    for record in training.records:
        assert set(record["diagnostics"]) == set(found)
        assert all(np.isfinite(value) for value in record["diagnostics"].values())
    assert training.records[0]["diagnostics"]["personal_share"] == 0.0
    assert training.records[-1]["diagnostics"]["personal_share"] > 0.01


def test_without_diffusion_nothing_changes_and_nobody_moved_is_nothing_personal() -> None:
    method = make(diffusion="none")
    assert float(method.diagnostics(heard(method))["diffusion_change"]) == 0.0
    same = {"a": torch.ones(3, 2, 2)}
    assert float(personal_share(same, {"a": torch.ones(4)})) == 0.0


def test_similarity_is_a_cosine() -> None:
    training, _ = tapped(3)
    found = training.method.similarity(training.server)
    assert_near(found, found.T, 1e-6)
    assert_near(found.diagonal(), torch.ones(5), 1e-5)
    assert float(found.min()) < 0  # what is read of clients is how they differ from their mean
    assert float(found.abs().max()) <= 1 + 1e-5
    assert {0, -1} <= set(training.similarities)


def after_changes(method: FedSheafHN, embeddings: Tensor) -> dict[str, Tensor]:
    """What clients with these embeddings are written after three rounds of changes."""
    server = heard(method, embeddings)
    for seed in range(3):
        down = method.aggregate(server, changes(method, 5, seed), EVERYONE, EVERYONE)
    return down


# -- who is described how ----------------------------------------------------------------------------


def test_the_start_is_written_until_something_was_learned() -> None:
    method = make()
    server, hello = method.server_start()
    assert hello == {}
    assert not server[HEARD].any()
    start = common_start(method.shapes(), 3, 5, torch.device("cpu"))
    down = method.aggregate(server, {EMBEDDING: numbers(0, 5, 8)}, EVERYONE, EVERYONE)
    assert_same({name.removeprefix("model."): w for name, w in down.items()}, {n: start[n] for n in GRAPH_LAYERS})


def test_those_not_heard_yet_are_described_by_the_mean_and_others_keep_what_they_sent() -> None:
    method = make()
    server, _ = method.server_start()
    first, second = unit_rows(numbers(0, 2, 8)), unit_rows(numbers(1, 2, 8))
    method.aggregate(server, {EMBEDDING: 3.0 * first}, torch.tensor([1, 3]), EVERYONE)
    assert server[HEARD].tolist() == [False, True, False, True, False]
    assert_near(server[VECTORS][[1, 3]], first, 1e-6)
    assert_near(server[VECTORS][[0, 2, 4]], first.mean(0).expand(3, -1), 1e-6)
    method.aggregate(server, {EMBEDDING: second}, torch.tensor([0, 3]), EVERYONE)
    assert server[HEARD].tolist() == [True, True, False, True, False]
    assert_near(server[VECTORS][[0, 3]], second, 1e-6)
    assert_near(server[VECTORS][1], first[0], 1e-6)  # it did not send: what it sent before stays
    mean = torch.stack([second[0], first[0], second[1]]).mean(0)
    assert_near(server[VECTORS][[2, 4]], mean.expand(2, -1), 1e-6)
    # Without embeddings nobody's description changes, whoever sends.
    kept = server[VECTORS].clone()
    method.aggregate(server, changes(method, 2), torch.tensor([2, 4]), EVERYONE)
    assert torch.equal(server[VECTORS], kept)
    assert server[HEARD].tolist() == [True, True, False, True, False]


def test_what_was_sent_is_learned_from_with_the_descriptions_it_was_written_with() -> None:
    """New embeddings come into use after the step."""
    method = make()
    one = busy(method)
    two = copied(one)
    added, new = {n: v.double() for n, v in changes(method, 5).items()}, numbers(4, 5, 8).double()
    method.aggregate(one, added | {EMBEDDING: new}, EVERYONE, EVERYONE)
    method.learn(two, flat(added), EVERYONE)
    assert_near(one[VECTORS], unit_rows(new), 1e-12)
    assert_same(method.parameters(one), method.parameters(two))


def test_receivers_get_their_own_weights() -> None:
    method = make()
    server = busy(method)
    added = {name: value.double() for name, value in changes(method, 3).items()}
    senders, receivers = torch.tensor([0, 2, 3]), torch.tensor([1, 2, 4])
    some = method.aggregate(copied(server), added, senders, receivers)
    everyone = method.aggregate(copied(server), added, senders, EVERYONE)
    for name, w in everyone.items():
        assert_near(some[name], w[receivers], 1e-12)
    assert not torch.allclose(some["model.conv1.weight"][0], some["model.conv1.weight"][1])


def unit_rows(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("factor", [1e-3, 1e6])
def test_the_length_of_an_embedding_changes_nothing(factor: float) -> None:
    method, embeddings = make(), numbers(0, 5, 8)
    longer, turned = embeddings.clone(), embeddings.clone()
    longer[1:3] *= factor
    turned[1:3] *= -1.0
    plain, scaled, other = (after_changes(method, each) for each in (embeddings, longer, turned))
    for name, w in plain.items():
        assert_near(scaled[name], w, 1e-4)
        assert float((other[name] - w).abs().max()) > 1e-2  # the direction does


def test_the_length_of_an_embedding_changes_nothing_for_those_not_heard_yet() -> None:
    method, embeddings, found = make(), numbers(0, 3, 8), []
    for scale in (1.0, 1e6):
        server, _ = method.server_start()
        method.aggregate(
            server, {EMBEDDING: torch.cat([embeddings[:2], scale * embeddings[2:]])}, EVERYONE[:3], EVERYONE
        )
        found.append(method.described(server[VECTORS]))
    assert_near(found[1], found[0], 1e-4)


def test_centred_embeddings_are_differences_from_the_mean_of_those_who_train() -> None:
    method, embeddings = make(scaling="centred"), numbers(0, 7, 8) + 3.0  # of five who train and two newcomers
    x = embeddings.numpy().astype(np.float64)
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    centred = u - u[:5].mean(0)
    centred *= np.sqrt(8) / np.sqrt((centred[:5] ** 2).sum(1).mean())
    assert_near(method.described(embeddings), torch.from_numpy(centred).float(), 1e-4)
    assert_near(method.described(embeddings)[:5].square().mean(), torch.ones(()), 1e-5)
    alike = method.described(embeddings[:1].expand(5, -1))
    assert_near(alike, torch.zeros(5, 8), 1e-3)


def test_embeddings_may_be_left_as_they_are() -> None:
    method, embeddings = make(scaling="none"), 7.0 * numbers(0, 5, 8)
    server = heard(method, embeddings)
    assert torch.equal(server[VECTORS], embeddings)
    assert torch.equal(method.described(server[VECTORS]), embeddings)


# -- the permutation test ----------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [2, 3, 5, 20])
def test_shuffled_clients_are_all_given_another_ones_place(clients: int) -> None:
    seen = set()
    for turn in range(8):
        order = shuffled(clients, 3, torch.tensor([turn]))
        assert sorted(order.tolist()) == list(range(clients))
        assert not (order == torch.arange(clients)).any()
        assert torch.equal(order, shuffled(clients, 3, torch.tensor([turn])))
        seen.add(tuple(order.tolist()))
    assert len(seen) > 1 or clients == 2
    assert shuffled(1, 3, torch.zeros(1, dtype=torch.int64)).tolist() == [0]
    other = [tuple(shuffled(20, seed, torch.zeros(1, dtype=torch.int64)).tolist()) for seed in range(4)]
    assert len(set(other)) == 4


@pytest.mark.parametrize("kind", ["once", "every-round"])
def test_a_shuffling_server_gives_clients_the_vectors_of_others(kind: str) -> None:
    """In NumPy, row i of what is described is that of client order[i]; anew every round, or the same throughout."""
    method = make(shuffle=kind)
    server, orders = heard(method), []
    for seed in range(4):
        order = server[ORDER].clone()
        orders.append(tuple(order.tolist()))
        plain = method.described(server[VECTORS]).numpy()
        assert np.array_equal(method.vectors(server).numpy(), plain[order.numpy()])
        # What comes back is learned from with the vectors it was written from, before the next shuffle.
        learned = copied(server)
        method.learn(learned, {n: v.float() for n, v in flat(changes(method, 5, seed)).items()}, EVERYONE)
        down = method.aggregate(server, changes(method, 5, seed), EVERYONE, EVERYONE)
        assert_same(method.parameters(server), method.parameters(learned))
        written = method.write(method.parameters(server), method.described(server[VECTORS])[server[ORDER]], EVERYONE)
        assert_same(down, written)
    assert len(set(orders)) == (1 if kind == "once" else 4)


def test_a_shuffle_changes_what_is_written_only_where_something_personal_is() -> None:
    for step in (0.0, 1.0):
        plain, turned = (
            after_changes(make(shuffle=kind, personal_step=step), numbers(0, 5, 8)) for kind in ("never", "every-round")
        )
        apart = max(float((plain[name] - w).abs().max()) for name, w in turned.items())
        assert (apart > 1e-2) == bool(step)


def test_newcomers_are_not_shuffled() -> None:
    method = make(shuffle="every-round")
    server, _ = taught(method, 3)
    new = numbers(1, 1, 8)
    given = method.newcomer_download(method.newcomer_state(server), {EMBEDDING: new})
    vectors = method.described(torch.cat([server[VECTORS], new]))
    expected = method.write(method.parameters(server), vectors, torch.tensor([5]))
    assert_same(given, expected)


def test_a_generated_classifier_crosses_and_a_private_one_does_not() -> None:
    _, tap = tapped(3, generates="model")
    assert UPDATE + "classifier.weight" in tap.ups[1]
    assert "model.classifier.weight" in tap.downs[1]
    _, tap = tapped(3)
    assert UPDATE + "classifier.weight" not in tap.ups[1]


def test_one_hot_clients_are_known_by_number_alone() -> None:
    method = make(client_vector="one-hot")
    one, two = (after_changes(method, embeddings) for embeddings in (numbers(0, 5, 8), 100 * numbers(1, 5, 8)))
    assert_same(one, two)
    assert torch.equal(method.described(numbers(0, 5, 8)), torch.eye(5))
    assert method.net.inputs == 5
    assert float((one["model.conv1.weight"][0] - one["model.conv1.weight"][1]).abs().max()) > 1e-3


def test_a_stalk_that_does_not_divide_the_width_is_refused() -> None:
    with pytest.raises(FedquiltError, match="stalk=3 does not divide width=16; choose one that does, such as 4"):
        make(stalk=3)
    for diffusion in ("gcn", "gat", "none"):  # there are no stalks
        assert make(stalk=3, diffusion=diffusion).net.stalk == 3
    with pytest.raises(FedquiltError, match="refresh=-1"):
        make(refresh=-1)


def test_defaults_are_the_datasets() -> None:
    clients = ragged_clients()
    for dataset, chosen in TAILORED.items():
        method = make_method("fedsheafhn", clients, make_task(clients, dataset=dataset, epochs=77))
        assert {name: getattr(method.settings, name) for name in chosen} == chosen
        assert 1 <= method.settings.epochs <= 15  # the paper's range
    assert make_method("fedsheafhn", clients, make_task(clients, epochs=77)).settings.epochs == 77


# -- a whole training --------------------------------------------------------------------------------


def majority(clients: list[Client]) -> list[float]:
    clients = [replace(client, id=m) for m, client in enumerate(clients)]
    training = make_training(make_method("majority", clients), clients, Plan(1))
    training.run()
    return training.records[-1]["clients"]["test"]


@pytest.mark.parametrize("settings", [{}, *VARIANTS], ids=named)
def test_every_variant_learns(settings: dict[str, Any]) -> None:
    clients = ragged_clients((60, 45, 80), seed=1)
    training = make_training(make(clients, warmup=10, **{"hidden": 16} | settings), clients, Plan(12))
    training.run()
    assert training.records[-1]["test"] > np.mean(majority(clients)) + 5
    losses = [record["train_loss"] for record in training.records]
    assert losses[-1] < losses[1] - 0.05  # round 0 is the warm-up, and round 1 begins at the common start again


def test_clients_are_written_weights_of_their_own() -> None:
    _, tap = tapped(6)
    for r, down in enumerate(tap.downs[1:], start=1):
        apart = float((down["model.conv1.weight"][0] - down["model.conv1.weight"][1]).abs().max())
        assert (apart > 1e-4) == (r > 1)  # everyone begins at the common start


class Killed(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("settings", [{}, {"fresh_moments": False, "refresh": 0}], ids=named)
@pytest.mark.parametrize("last", [0, 2, 3])
def test_a_resumed_training_is_bit_identical(last: int, settings: dict[str, Any], tmp_path: Path) -> None:
    clients = ragged_clients()

    def begin(folder: SeedFolder | None) -> Training:
        plan = Plan(6, 0.6, checkpoint_seconds=-1.0)
        return make_training(make(clients, **settings), clients, plan, store=folder)

    def stop(record: dict[str, Any]) -> None:
        if record["round"] == last:
            raise Killed

    whole, killed, resumed = begin(None), begin(SeedFolder(tmp_path)), begin(SeedFolder(tmp_path))
    whole.run()
    killed.on_round = stop
    with pytest.raises(Killed):
        killed.run()
    resumed.run()
    assert without_seconds(resumed.records) == without_seconds(whole.records)
    assert_same(resumed.engine.state(), whole.engine.state())
    assert_same(resumed.server, whole.server)
    assert_same(resumed.progress.best.models, whole.progress.best.models)
    for r, similarity in whole.similarities.items():
        assert torch.equal(resumed.similarities[r], similarity)


def test_a_federation_of_one() -> None:
    training, tap = tapped(4, clients=ragged_clients((14,)))
    assert all(np.isfinite(record["train_loss"]) for record in training.records)
    for up, down, after in zip(tap.ups[1:-1], tap.downs[1:-1], tap.downs[2:], strict=True):
        # With nobody else to please it is written what it arrived at, up to what new parameters before the last layer do.
        for name in GRAPH_LAYERS:
            assert_near(after[f"model.{name}"], down[f"model.{name}"] + up[UPDATE + name], 0.02)


# -- newcomers ---------------------------------------------------------------------------------------


def frozen(training: Training) -> FrozenServer:
    lasting = training.method.newcomer_state(training.server)
    return FrozenServer(training.method, lasting, torch.device("cpu"), "40/30/30", False, None)


def taught(method: FedSheafHN, rounds: int = 40) -> tuple[State, dict[str, Tensor]]:
    """A server that learned weights of its own for each client, and what it writes them at last."""
    server, embeddings = heard(method), numbers(9, 5, 8)
    down = method.aggregate(server, {EMBEDDING: embeddings}, EVERYONE, EVERYONE)
    target = {name: w + numbers(i, *w.shape) for i, (name, w) in enumerate(down.items())}
    for _ in range(rounds):
        uploads = {UPDATE + name.removeprefix("model."): target[name] - w for name, w in down.items()}
        down = method.aggregate(server, uploads, EVERYONE, EVERYONE)
    return server, down


def apart(one: dict[str, Tensor], two: dict[str, Tensor]) -> Tensor:
    return sum((one[name] - two[name]).flatten(1).square().sum(1) for name in one).sqrt()


@pytest.mark.parametrize("twin", range(5))
@pytest.mark.parametrize(("settings", "near"), [({"diffusion": "none", "attention": False}, 1e-4), ({}, 0.6)], ids=str)
def test_a_newcomer_like_a_client_that_trained_is_given_its_weights(
    settings: dict[str, Any], near: float, twin: int
) -> None:
    """Exactly where clients do not see each other; nearly where a sixth among five changes what all of them see."""
    method = make(**settings)
    server, down = taught(method)
    given = method.newcomer_download(method.newcomer_state(server), {EMBEDDING: numbers(9, 5, 8)[twin : twin + 1]})
    assert all(w.shape == (1, *method.generated[name.removeprefix("model.")]) for name, w in given.items())
    distance = apart(given, down)
    between = min(float(apart({n: w[i : i + 1] for n, w in down.items()}, down).sort().values[1]) for i in range(5))
    assert int(distance.argmin()) == twin
    assert float(distance[twin]) < near * between


def test_a_newcomer_stands_beside_those_who_trained() -> None:
    """What it is written is what a client with its embedding would be, were it one of them."""
    method = make()
    server, _ = taught(method, 5)
    new = numbers(1, 2, 8)
    given = method.newcomer_download(method.newcomer_state(server), {EMBEDDING: new})
    vectors = torch.cat([server[VECTORS], new])
    scaled = vectors / vectors.norm(dim=1, keepdim=True) * 8**0.5
    represented = method.net.represent(method.parameters(server), scaled)
    everyone = method.net.generate(method.parameters(server), represented - represented[:5].mean(0))
    for name in GRAPH_LAYERS:
        assert_near(given[f"model.{name}"], everyone[name][5:], 1e-5)


def test_newcomers_have_no_number_and_are_all_described_alike() -> None:
    """One-hot: whatever they send, they are written what a client without a number is."""
    method = make(client_vector="one-hot")
    server, down = taught(method)
    described = method.described(numbers(0, 7, 8))
    assert torch.equal(described[:5], torch.eye(5))
    assert not described[5:].any()
    one, two = (
        method.newcomer_download(method.newcomer_state(server), {EMBEDDING: numbers(seed, 2, 8)}) for seed in (0, 1)
    )
    assert_same(one, two)
    for name, w in one.items():
        assert_near(w[0], w[1], 1e-5)
        assert bool(torch.isfinite(w).all())
        assert float((w[:1] - down[name]).abs().flatten(1).max(1).values.min()) > 1e-2  # nobody else's


def test_admitting_changes_nothing_at_the_server() -> None:
    method = make()
    server, _ = taught(method, 5)
    before = copied(server)
    lasting = method.newcomer_state(server)
    assert set(lasting) == {name for name in server if name.startswith(NET)} | {VECTORS}
    for _ in range(2):
        method.newcomer_download(lasting, {EMBEDDING: numbers(1, 3, 8)})
    assert_same(server, before)
    assert_same(lasting, {name: before[name] for name in lasting})


def test_newcomers_get_a_usable_model() -> None:
    """Better than always naming the majority, and what they train from is what they were given."""
    clients = ragged_clients((60, 45, 80, 60, 70), seed=1)
    training = make_training(make(clients[:3], warmup=10, newcomer_epochs=15, hidden=16), clients[:3], Plan(12))
    training.run()
    server, newcomers = frozen(training), clients[3:]
    kept = copied(server.lasting)
    admission = server.admit(newcomers)
    assert np.mean(admission.test) > np.mean(majority(newcomers)) + 10
    assert_same(server.lasting, kept)
    assert set(admission.bytes_up) == {EMBEDDING}
    assert set(admission.bytes_down) == {f"model.{name}" for name in GRAPH_LAYERS}
    assert server.admit(newcomers, cohort_size=1).test == pytest.approx(admission.test)


def test_settling_trains_what_was_given() -> None:
    method = make(newcomer_epochs=1, lr=1e-4)
    cohort = Cohort(ragged_clients())
    state = method.start(cohort)
    method.local_update(state, cohort, {}, 0)
    classifier = state["model.classifier.weight"].clone()
    down = {f"model.{name}": numbers(i, 5, *shape) for i, (name, shape) in enumerate(method.generated.items())}
    settled = method.newcomer_update(state, cohort, down)
    for name in GRAPH_LAYERS:
        moved = (settled.personal[name] - down[f"model.{name}"]).abs().max()
        assert 0 < float(moved) < 1e-3
    assert 0 < float((settled.personal["classifier.weight"] - classifier).abs().max()) < 1e-3
    assert set(settled.upload) == UPDATES  # and nobody sends it


def test_settling_starts_adam_afresh() -> None:
    method = make(newcomer_epochs=4, fresh_moments=True)
    cohort = Cohort(ragged_clients())
    state = method.start(cohort)
    method.local_update(state, cohort, {}, 0)
    down = {f"model.{name}": numbers(i, 5, *shape) for i, (name, shape) in enumerate(method.generated.items())}
    method.newcomer_update(state, cohort, down)
    assert state[STEP].tolist() == [4.0] * 5


# -- through the public API --------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    "clients": 5,
    "rounds": 4,
    "device": "cpu",
    "settings": {"hidden": 8, "width": 16, "warmup": 3, "refresh": 2, "newcomer_epochs": 3},
}


@pytest.mark.parametrize("kind", ["same-value", "gaussian"])
def test_an_attack_on_the_embeddings(kind: str) -> None:
    plain = fedquilt.run("fedsheafhn", **SMALL)
    one, two = (
        fedquilt.run("fedsheafhn", **SMALL, attack=kind, attack_ratio=0.4, attack_scale=scale) for scale in (5.0, 500.0)
    )
    for run in (one, two):
        groups = run.result["groups"]
        assert {name: part["clients"] for name, part in groups.items()} == {"honest": 3, "malicious": 2}
        for mine, other in zip(run.records[0][:2], plain.records[0][:2], strict=True):
            assert mine["clients"] == other["clients"]  # everyone was written the common start so far
        assert run.records[0][2]["val_loss"] != plain.records[0][2]["val_loss"]
    for mine, other in zip(one.records[0], two.records[0], strict=True):  # a longer lie is the same lie
        assert mine["val_loss"] == pytest.approx(other["val_loss"], rel=1e-3)


def test_clients_held_out_and_a_graph_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = fedquilt.run("fedsheafhn", out="out", hold_out_clients=0.4, **SMALL)
    counts = {name: part["clients"] for name, part in run.result["groups"].items()}
    assert counts == {"trained": 3, "new": 2, "new without training": 2, "new alone": 2}
    assert run.result["groups"]["new"]["test_mean"] > 0
    assert set(run.servers[0].lasting) == {n for n in run.servers[0].lasting if n.startswith(NET)} | {VECTORS}
    graph = load_graph("patchwork:seed=1")[0].subgraph(np.arange(60), "newcomer")
    admitted = run.admit(graph)
    again = fedquilt.load_run("out", device="cpu").admit(graph)
    assert_same(admitted.model, again.model)
    assert admitted.predictions.shape == (60, graph.classes)
    assert admitted.upload_bytes == 4 * 8


def test_an_attack_and_clients_held_out() -> None:
    run = fedquilt.run("fedsheafhn", **SMALL, attack="gaussian", attack_ratio=0.3, hold_out_clients=0.4)
    assert {n: p["clients"] for n, p in run.result["groups"].items()} == {
        "honest": 2,
        "malicious": 1,
        "trained": 3,
        "new": 2,
        "new without training": 2,
        "new alone": 2,
    }


# -- the largest eigenvalue ----------------------------------------------------------------------------


def spread(read: Tensor) -> float:
    gram = read.double().numpy()
    return float(np.linalg.eigvalsh(gram @ gram.T)[-1])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(("clients", "width"), [(1, 1), (1, 9), (2, 3), (5, 128), (40, 6), (300, 16)])
def test_the_spread_is_the_largest_eigenvalue(clients: int, width: int, scale: float) -> None:
    read = numbers(clients, clients, width) * scale
    found = inverse_spread(read)
    assert (found.shape, found.dtype) == ((), torch.float32)
    assert float(found) == pytest.approx(1.0 / spread(read), rel=1e-5)


def test_the_spread_of_clients_along_one_line() -> None:
    along = torch.outer(numbers(0, 12), numbers(1, 7))
    assert float(inverse_spread(along)) == pytest.approx(1.0 / spread(along), rel=1e-5)


@pytest.mark.parametrize("apart", [0.0, 1e-7, 1e-4, 1e-2, 0.5])
@pytest.mark.parametrize("count", [2, 5, 30])
def test_the_spread_where_eigenvalues_are_nearly_equal(count: int, apart: float) -> None:
    """The squarings cannot tell them apart, and need not."""
    basis = torch.linalg.qr(numbers(count, 40, count))[0].T
    read = basis * torch.sqrt(1.0 - apart * torch.arange(count) / count).unsqueeze(1)
    assert float(inverse_spread(read)) == pytest.approx(1.0 / spread(read), rel=1e-5)


def test_clients_that_do_not_differ_have_no_spread() -> None:
    """Then nothing personal is learnt, instead of noise without bounds."""
    same = numbers(0, 1, 6).expand(5, -1)
    for read in (same - same.mean(0), torch.zeros(5, 6), torch.zeros(1, 6), same * 1e-9):
        assert float(inverse_spread(read)) == 0.0


# -- its studies -----------------------------------------------------------------------------------------


OWN_STUDIES = [name for name in study_names() if name.startswith("fedsheafhn-")]


@pytest.mark.parametrize("name", [name for name in OWN_STUDIES if name != "fedsheafhn-figure-4"])
def test_its_studies_have_fedper_with_equal_epochs(name: str) -> None:
    """Beside every FedSheafHN there is a FedPer that differs in the method only: same graph, split, rounds and local epochs."""
    study, runs = find_study(name), {}
    for place in study.places():
        if study.missing_at(place) is None:
            options = {k: v for k, v in study.options_at(place).items() if not k.startswith("attack")}
            method, _ = options.pop("method"), options.pop("settings", None)
            runs.setdefault(method, set()).add(tuple(sorted((k, str(v)) for k, v in options.items())))
    assert runs["fedsheafhn"] <= runs["fedper"]
    for options in runs["fedper"]:
        assert "epochs" in dict(options)


def test_the_study_of_newcomers_shows_them_without_training_too() -> None:
    study = find_study("fedsheafhn-figure-4")
    assert list(study.values) == ["test.trained", "test.new without training", "test.new"]
    steps = {study.options_at(place).get("settings", {}).get("personal_step") for place in study.places()}
    assert steps == {0, None}  # beside what was generated for each, the same layers for everyone
