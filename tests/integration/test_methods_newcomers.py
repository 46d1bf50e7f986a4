"""Clients that come after training, whatever the method: each gives what it has, or says why it has nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedquilt
from fedquilt.cohort.client import Client
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import declared
from fedquilt.methods.base import Method, methods
from fedquilt.scenarios.newcomers import Admission, FrozenServer, check_admits
from fedquilt.training.client_sampling import some_clients
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.federations import (
    assert_same,
    copied,
    make_method,
    make_task,
    make_training,
    ragged_clients,
    relabelled,
    small_settings,
    tapped_run,
)
from support.newcomers import frozen

ADMITTING = [name for name, method in methods().items() if method.admits]
REFUSING = [name for name in methods() if name not in ADMITTING]
# Newcomers also see each other, as clients that train do.
TOGETHER = ("fedsheafhn",)
SENDING = {
    "fedgnn": {"node.embedding", "node.count"},
    "gcfl": {"model.*"},
    "gcflplus": {"model.*"},
    "fedpub": {"embedding"},
    "fediih": {"latent.mean", "latent.logvar"},
    "fedgta": {"embedding"},
    "pfedgraph": {"model.*"},
    "pfedhn": {"update.*"},
    "fedssa": {"filter", "energy", "class.mean", "class.covariance", "class.count"},
    "fedsheafhn": {"embedding"},
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *(("fedpub", {"similarity": kind}) for kind in ("parameter", "gradient", "label")),
    ("fedpub", {"matching": False}),
    ("fedpub", {"contrast": "centred"}),
    ("fedpub", {"communities": "explicit", "threshold": 0.5}),
    ("fediih", {"variational": False}),
    ("fediih", {"divergence": "mean", "hierarchy": False}),
    ("fedssa", {"semantic": False}),
    ("fedssa", {"structural": False, "components": 3}),
    ("fedssa", {"semantic": False, "structural": False}),
    ("fedgta", {"confidence": False}),
    ("fedgnn", {"neighbours": 0}),
    ("fedsageplus", {"generated": 0}),
    ("fedproto", {"classify": "prototype"}),
    ("pfedhn", {"reading": "outputs", "personal": "generated"}),
    ("pfedhn", {"generates": "layers", "fresh_moments": True}),
    ("gcfl", {"share": "layers"}),
    ("fedhero", {"share": "none"}),
    ("quilt", {"share": ""}),
    ("quilt", {"model": "sage", "share": "layer"}),
    ("fedsheafhn", {"client_vector": "one-hot"}),
    ("scaffold", {"optimiser": "sgd", "lr": 0.5}),
]


def trained(name: str, **settings: Any) -> tuple[Training, FrozenServer, list[Client]]:
    """A training of three of five clients, its server, and the other two."""
    clients = ragged_clients()
    method = make_method(name, clients[:3], make_task(clients[:3], newcomer_epochs=3), **settings)
    training = make_training(method, clients[:3], Plan(3))
    training.run()
    return training, frozen(training), clients[3:]


once = cache(trained)


def assert_near(one: Admission, two: Admission, places: slice = slice(None)) -> None:
    assert one.test == pytest.approx(two.test[places])
    assert one.test_alone == pytest.approx(two.test_alone[places])
    for name, tensor in one.models.items():
        assert torch.allclose(tensor, two.models[name][places], atol=1e-4), name


# -- every method ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REFUSING)
def test_a_method_with_nothing_to_give_says_so(name: str) -> None:
    assert not methods()[name].uploads  # who shares something has something to give
    assert methods()[name].newcomers.endswith(".")
    with pytest.raises(FedquiltError) as caught:
        check_admits(methods()[name])
    assert str(caught.value).endswith(methods()[name].newcomers)


@pytest.mark.parametrize("name", ADMITTING)
def test_newcomers_get_models_of_their_own_and_change_nobody_elses(name: str) -> None:
    training, server, newcomers = once(name)
    before = copied(server.lasting), copied(training.engine.state()), copied(training.server)
    both = server.admit(newcomers)
    check_sent(training.method, both)
    for values in (both.val, both.test, both.test_untrained, both.test_alone):
        assert len(values) == 2
        assert all(value is not None and np.isfinite(value) for value in values)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in both.models.values())
    # Each gets what it would get alone, where they are not told of each other.
    if name not in TOGETHER:
        assert_near(server.admit(newcomers[1:]), both, slice(1, 2))
    # Labels of nodes that do not train reach nothing; and a server that was stored gives the same.
    facts = json.loads(json.dumps(server.facts()))
    stored = FrozenServer.restored(copied(server.lasting), facts, torch.device("cpu"))
    assert stored.method.context == server.method.context
    assert_same(stored.admit(relabelled(newcomers, name)).models, both.models)
    after = copied(server.lasting), copied(training.engine.state()), copied(training.server)
    for one, two in zip(after, before, strict=True):
        assert_same(one, two)


def check_sent(method: Method, admission: Admission) -> None:
    """It sent what is said and declared, and nothing else."""
    asked = set(method.newcomer_sends())
    assert asked == SENDING.get(method.name, asked)
    assert all(declared(method.uploads, one) is not None for one in asked)
    assert method.newcomers.endswith(".")
    assert ("sends nothing" in method.newcomers) is not bool(asked)
    assert all(any(fnmatchcase(sent, one) for sent in admission.bytes_up) for one in asked)
    assert all(any(fnmatchcase(sent, one) for one in asked) for sent in admission.bytes_up)


@pytest.mark.parametrize(
    ("name", "settings"),
    [pytest.param(name, settings, id=f"{name}-{settings}", marks=pytest.mark.long) for name, settings in VARIANTS],
)
def test_newcomers_of_other_settings(name: str, settings: dict[str, Any]) -> None:
    _, server, newcomers = trained(name, **settings)
    both = server.admit(newcomers)
    assert all(value is not None for value in both.test)
    if name not in TOGETHER:
        assert_near(server.admit(newcomers[:1]), both, slice(0, 1))
    stored = FrozenServer.restored(copied(server.lasting), json.loads(json.dumps(server.facts())), torch.device("cpu"))
    assert_same(stored.admit(newcomers).models, both.models)


# -- what is given -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedsage", "ditto", "apfl", "fedper", "fedrep", "fedstar"])
def test_averages_are_what_numpy_says(name: str) -> None:
    clients = ragged_clients()
    training, tap = tapped_run(make_method(name, clients[:3]), clients[:3], 3, 1.0)
    server = frozen(training)
    given = training.method.newcomer_download(server.lasting, {})
    nodes = tap.ups[-1]["train_nodes"].double().numpy()
    assert set(given) == {one for one in tap.ups[-1] if one.startswith("model.")}
    for one, tensor in given.items():
        expected = np.tensordot(nodes / nodes.sum(), tap.ups[-1][one].double().numpy(), axes=1)
        assert np.allclose(tensor, expected, atol=1e-6), one
    received = server.admit(clients[3:])
    assert received.bytes_up == {}
    assert sum(received.bytes_down.values()) == 2 * sum(4 * tensor.numel() for tensor in given.values())


def numbers(server: FrozenServer) -> dict[str, np.ndarray]:
    return {name: tensor.double().numpy() for name, tensor in server.lasting.items()}


def drawn(like: Tensor, newcomers: int = 2, seed: int = 0) -> Tensor:
    return torch.randn(newcomers, *like.shape[1:], generator=torch.Generator().manual_seed(seed))


def flat(models: dict[str, np.ndarray], names: list[str]) -> np.ndarray:
    return np.concatenate([models[name].reshape(len(models[name]), -1) for name in names], axis=1)


def cosine(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    return one @ two.T / np.linalg.norm(one, axis=1)[:, None] / np.linalg.norm(two, axis=1)


def softmax(score: np.ndarray) -> np.ndarray:
    share = np.exp(score - score.max(-1, keepdims=True))
    return share / share.sum(-1, keepdims=True)


def test_fedpub_averages_by_functional_similarity() -> None:
    _, server, _ = once("fedpub")
    sent, kept = {"embedding": drawn(server.lasting["embedding"])}, numbers(server)
    share = softmax(3.0 * cosine(sent["embedding"].double().numpy(), kept["embedding"]))
    given = server.method.newcomer_download(server.lasting, sent)
    for name in (name for name in kept if name.startswith("model.")):
        assert np.allclose(given[name], np.tensordot(share, kept[name], axes=1), atol=1e-5), name


def test_pfedgraph_solves_the_quadratic_program() -> None:
    """The row that is found is the best among many on the simplex."""
    _, server, _ = once("pfedgraph")
    kept, stream = numbers(server), np.random.default_rng(0)
    names = [name for name in kept if name.startswith("model.")]
    sent = {name: drawn(server.lasting[name], seed=place) for place, name in enumerate(names)}
    start = {name: value.double().numpy() for name, value in server.method.public_start().items()}
    moved = flat({name: sent[name].double().numpy() - start[name] for name in names}, names)
    found = cosine(moved, flat({name: kept[name] - start[name] for name in names}, names))
    size = kept["train_nodes"] / kept["train_nodes"].sum()
    tried = stream.dirichlet(np.ones(3), 200_000)
    given = server.method.newcomer_download(server.lasting, sent)
    for place in range(2):
        cost = 0.5 * ((tried - size) ** 2).sum(1) - tried @ found[place]
        best = tried[cost.argmin()]
        for name in names:
            expected = np.tensordot(best, kept[name], axes=1)
            assert np.allclose(given[name][place], expected, atol=0.02 * np.abs(kept[name]).max()), name


def test_fedgta_averages_those_with_like_moments_by_confidence() -> None:
    _, server, _ = once("fedgta")
    kept = numbers(server)
    sent = {"embedding": server.lasting["embedding"][:2] + 0.2 * drawn(server.lasting["embedding"])}
    found = cosine(sent["embedding"].double().numpy(), kept["embedding"])
    near = (found >= 0.7) | ((found < 0.7).all(1, keepdims=True) & (found == found.max(1, keepdims=True)))
    share = near * kept["confidence"]
    share /= share.sum(1, keepdims=True)
    given = server.method.newcomer_download(server.lasting, sent)
    for name in (name for name in kept if name.startswith("model.")):
        assert np.allclose(given[name], np.tensordot(share, kept[name], axes=1), atol=1e-5), name


def test_fediih_averages_each_factor_by_the_divergence_in_it() -> None:
    _, server, _ = once("fediih")
    kept = server.lasting
    sent = {
        name: kept[name][:2] + 0.5 * drawn(kept[name], seed=place)
        for place, name in enumerate(("latent.mean", "latent.logvar"))
    }
    given = server.method.newcomer_download(kept, sent)
    both = [torch.cat([kept[name], sent[name]]) for name in ("latent.mean", "latent.logvar")]
    alike = server.method.compare(*both).double().numpy()  # [K, 5, 5]
    median = np.array([np.sort(part[np.triu_indices(3, 1)])[1] for part in alike[:, :3, :3]])
    sharpness = np.minimum(10.0, 3.0 / np.maximum(1.0 - median, 1e-6))[:, None, None]
    share = softmax(sharpness * alike[:, 3:, :3])
    weight = kept["model.projection.weight"].double().numpy().reshape(3, -1, len(share), server.method.width)
    expected = np.einsum("krn,nfkd->rfkd", share, weight).reshape(2, *kept["model.projection.weight"].shape[1:])
    assert np.allclose(given["model.projection.weight"], expected, atol=1e-5)
    assert np.allclose(given["model.classifier.bias"], kept["model.classifier.bias"].mean(0), atol=1e-6)
    assert torch.equal(given["alpha"], kept["last.alpha"])


@pytest.mark.parametrize("clusters", [[0, 0, 1], [0, 1, 2]])
def test_gcfl_gives_the_model_of_the_cluster_toward_which_the_newcomer_went(clusters: list[int]) -> None:
    _, server, _ = once("gcfl")
    count, lasting = max(clusters) + 1, {"cluster": torch.tensor(clusters)}
    for place, (name, tensor) in enumerate(server.lasting.items()):
        if name != "cluster":
            lasting[name] = drawn(tensor, count, seed=place)
    mean = server.method.newcomer_greeting(lasting)
    share = np.bincount(clusters) / 3
    for name, tensor in mean.items():
        centre = lasting["centre." + name.removeprefix("model.")].numpy()
        assert np.allclose(tensor, np.tensordot(share, centre, axes=1), atol=1e-6)
    for wanted in range(count):
        toward = {
            name: (0.3 * (lasting["centre." + name[6:]][wanted] - w) + w).unsqueeze(0) for name, w in mean.items()
        }
        given = server.method.newcomer_download(lasting, toward)
        for name, tensor in given.items():
            assert torch.equal(tensor[0], lasting["centre." + name[6:]][wanted])


def test_pfedhn_finds_the_vector_that_generates_what_the_newcomer_wants() -> None:
    """One that went where a client's weights are is given nearly these; nothing else is as near."""
    _, server, _ = once("pfedhn")
    method, lasting = server.method, copied(server.lasting)
    stream = torch.Generator().manual_seed(0)
    for name in (name for name in lasting if name.startswith("net.out.") and name.endswith(".weight")):
        lasting[name] = torch.randn(lasting[name].shape, generator=stream)
    params = method.parameters(lasting)
    theirs = method.net.generate(params, method.read(params, lasting["vectors"]))
    common = method.newcomer_greeting(lasting)
    for client in range(3):
        sent = {"update." + n: 0.01 * (w[client] - common["model." + n]).unsqueeze(0) for n, w in theirs.items()}
        given = method.newcomer_download(lasting, sent)
        apart = [
            sum(float((given["model." + n][0] - w[m]).square().sum()) for n, w in theirs.items()) for m in range(3)
        ]
        from_common = sum(float((common["model." + n] - w[client]).square().sum()) for n, w in theirs.items())
        assert int(np.argmin(apart)) == client
        assert apart[client] < 0.3 * from_common


def test_fedssa_describes_the_nearest_clusters() -> None:
    """A newcomer that sends what a client sent is given what that client was given."""
    clients = ragged_clients()
    training, tap = tapped_run(make_method("fedssa", clients), clients, 3, 1.0)
    server = frozen(training)
    given = training.method.newcomer_download(server.lasting, tap.ups[-1])
    # Of distinct clusters of few clients, each client's own is the nearest by construction of its mean, or another as near.
    expected = {name: training.down[name] for name in given}
    for name in ("cluster.filter", "cluster.size"):
        same = (given[name] - expected[name]).view(5, -1).abs().amax(1) < 1e-5
        assert int(same.sum()) >= 4, name
    classes = (given["cluster.weight"].sum(2) > 0) == (tap.ups[-1]["class.count"] > 0)
    assert bool(classes.all())
    mean, own = given["cluster.mean"][:, :, 0], tap.ups[-1]["class.mean"]
    others = expected["cluster.mean"][:, :, 0]
    for client in range(5):
        for c in range(own.shape[1]):
            gaps = [float((own[client, c] - others[m, c]).norm()) for m in range(5)]
            assert float((own[client, c] - mean[client, c]).norm()) == pytest.approx(min(gaps), abs=1e-4)


def test_fedgnn_gives_look_alikes_of_those_who_trained() -> None:
    _, server, _ = once("fedgnn")
    known = server.lasting["known"]
    rows = torch.cat([known[1:2, :4], drawn(known, 1)[:, :2]], dim=1)
    sent = {
        "node.embedding": torch.nn.functional.pad(rows, (0, 0, 0, known.shape[1] - 6)),
        "node.count": torch.tensor([4.0]),
    }
    alike = server.method.newcomer_download(server.lasting, sent)["alike"][0]
    real = [row for row in alike if bool(row.any())]
    for row in real:  # of the six rows, two are beyond the count
        assert max(float(torch.cosine_similarity(row, one, dim=0)) for one in known[1, :4]) > 0.5
        assert float((known.flatten(0, 1) - row).norm(dim=1).min()) == 0.0
    assert len(real) >= 4


@pytest.mark.parametrize("name", [name for name in SENDING if name != "gcflplus"])
def test_a_newcomer_that_sends_what_another_sent_is_given_what_that_one_was(name: str) -> None:
    """The permutation test: what is given depends on what was sent, and on nothing else of who sent it."""
    _, server, newcomers = once(name)
    lasting = copied(server.lasting)
    if name in ("pfedhn", "fedsheafhn"):  # after three rounds hardly anything is personal
        for place, one in enumerate(one for one in lasting if one.startswith("net.out")):
            lasting[one] += 0.3 * drawn(lasting[one], len(lasting[one]), place)
    if name == "gcfl":  # and there is one cluster
        lasting = {n: w if n == "cluster" else drawn(w, 3, place) for place, (n, w) in enumerate(lasting.items())}
        lasting["cluster"] = torch.arange(3)
    method = server.method
    sent: dict[str, Tensor] = {}
    for place, (one, tensor) in enumerate(_uploads(server, newcomers).items()):
        noise = drawn(tensor, seed=place)
        sent[one] = tensor if one in ("node.count", "class.count") else tensor + noise * tensor.flatten(1).std()
        if one == "class.covariance":
            sent[one] = tensor
        if name == "fedgta":  # like nobody, so that the nearest is given
            sent[one] = noise
    swapped = {one: tensor.flip(0) for one, tensor in sent.items()}
    given, other = (method.newcomer_download(lasting, message) for message in (sent, swapped))
    personal = [one for one in given if not declared(method.downloads, one).shared]  # type: ignore[union-attr]
    for one in personal:
        assert torch.allclose(given[one], other[one].flip(0), atol=1e-4), one
    assert any(not torch.allclose(given[one][0], given[one][1], atol=1e-6) for one in personal)


def _uploads(server: FrozenServer, newcomers: list[Client]) -> dict[str, Tensor]:
    """What the newcomers would send."""
    found: dict[str, Tensor] = {}
    method = server.method
    original = method.newcomer_download

    def listen(lasting: Any, uploads: Any) -> Any:
        found.update(copied(uploads))
        return original(lasting, uploads)

    method.newcomer_download = listen  # type: ignore[method-assign]
    try:
        server.admit(newcomers)
    finally:
        del method.newcomer_download
    return found


def test_a_second_model_starts_from_the_average() -> None:
    """Ditto's and APFL's newcomers are evaluated with it as it is."""
    answers = [once(name)[1].admit(once(name)[2]).test_untrained for name in ("ditto", "apfl")]
    server, newcomers = once("fedavg")[1:]
    average = replace(server, lasting=once("ditto")[1].lasting).admit(newcomers).test_untrained
    assert answers[0] == pytest.approx(average)
    assert answers[1] == pytest.approx(replace(server, lasting=once("apfl")[1].lasting).admit(newcomers).test_untrained)


# -- runs --------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"clients": 5, "rounds": 2, "device": "cpu", "settings": {"hidden": 8}}


def graph() -> Any:
    return load_graph("patchwork:seed=1")[0].subgraph(np.arange(60), "newcomer")


def test_alone_is_what_local_does_in_as_many_epochs() -> None:
    settings = {"hidden": 8, "lr": 0.01, "dropout": 0.0}  # without dropout, whose numbers are a client's own
    held = fedquilt.run("fedavg", hold_out_clients=0.4, newcomer_epochs=6, **SMALL | {"settings": settings})
    alone = fedquilt.run("local", **SMALL | {"rounds": 6, "settings": settings})
    out = some_clients(0, 5, 0.4, "hold out").tolist()
    tests = alone.records[0][-1]["clients"]["test"]
    assert held.result["groups"]["new alone"]["test_mean"] == pytest.approx(np.mean([tests[m] for m in out]))
    assert held.admit(graph()).epochs == 6
    assert held.admit(graph(), epochs=3).epochs == 3
    with pytest.raises(FedquiltError, match="A newcomer cannot train for epochs=0; give at least 1"):
        held.admit(graph(), epochs=0)


@pytest.mark.parametrize(("name", "rule"), [("fedpub", "mean"), ("fedpub", "median"), ("pfedgraph", "mean")])
def test_a_folder_admits_as_the_run_does_with_the_rule_of_the_run(tmp_path: Path, name: str, rule: str) -> None:
    run = fedquilt.run(name, out=tmp_path / "run", aggregation=rule, **SMALL)
    again = fedquilt.load_run(tmp_path / "run", device="cpu")
    assert again.servers[0].aggregation == run.servers[0].aggregation
    assert_same(again.admit(graph()).model, run.admit(graph()).model)
    summary = json.loads((tmp_path / "run" / "seed-0" / "summary.json").read_text())
    assert summary["server_bytes"] == run.servers[0].bytes > 0


def test_servers_that_would_be_too_large_are_not_kept_unless_clients_are_held_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedquilt.runs.method_checks.LARGEST_SERVER", 1000)
    with pytest.raises(FedquiltError, match="newcomers need the models of all clients, which were too many"):
        fedquilt.run("fedpub", **SMALL).admit(graph())
    assert fedquilt.run("fedpub", hold_out_clients=0.4, **SMALL).servers[0].bytes > 1000
    assert fedquilt.run("fedavg", **SMALL).servers[0].bytes > 1000  # an average has the size of one model


@pytest.mark.long
def test_of_a_protected_run_nothing_is_kept_that_its_server_never_had() -> None:
    private = {"dp_clip": 1.0, "dp_noise": 1.0}
    assert fedquilt.run("fedpub", **SMALL, **private).servers == {}
    assert fedquilt.run("fedavg", **SMALL, **private).admit(graph()).upload_bytes == 0


ANOTHER = """
import sys, numpy as np, fedquilt
from fedquilt.datasets.load import load_graph
graph = load_graph("patchwork:seed=1")[0].subgraph(np.arange(60), "newcomer")
admitted = fedquilt.load_run(sys.argv[1], device="cpu").admit(graph)
np.save(sys.argv[2], admitted.predictions)
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ADMITTING)
def test_another_process_admits_from_the_folder(tmp_path: Path, name: str) -> None:
    settings = small_settings(name)
    run = fedquilt.run(name, out=tmp_path / "run", **SMALL | {"settings": settings})
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}  # with others, sums would be in another order
    command = [sys.executable, "-c", ANOTHER, tmp_path / "run", tmp_path / "found.npy"]
    subprocess.run(command, check=True, env=os.environ | threads)
    assert np.array_equal(np.load(tmp_path / "found.npy"), run.admit(graph()).predictions)
