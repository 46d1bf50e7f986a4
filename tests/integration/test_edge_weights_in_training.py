"""Every method trains on weighted edges: ones change no bit, other weights do, and sites, resumed runs and exports agree."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from fedquilt.api import resume, run
from fedquilt.cohort.client import MEAN_WEIGHT, Client
from fedquilt.errors import FedquiltError
from fedquilt.export import load_module, module_of, save_module
from fedquilt.export.sources import module_of_personal
from fedquilt.federation.site.config import read_site
from fedquilt.federation.site.predict import predict
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.methods.base import federated_methods, methods
from fedquilt.nn.models import Model
from fedquilt.scenarios.link_inference import infer_links
from fedquilt.training.loop import Training
from fedquilt.training.memory_estimate import client_memory
from fedquilt.training.plan import Plan
from support.clients import assert_near, with_weights
from support.federations import make_method, make_task, make_training, ragged_clients
from support.flower_doubles import federation
from support.small_runs import own_graph, stop_after
from support.trained_sites import logits_of, personal_of

SIZES, ROUNDS = (14, 9, 18), 2
# What a method's other settings make of edges.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in methods()),
    *(("fedavg", {"model": kind}) for kind in Model.kinds if kind != "mlp"),
    ("fedssa", {"encoder": "separate", "elbo": 0.1}),
    ("fedhero", {"learner": "gat", "k": 4}),
    ("fedhero", {"learner": "gaug", "k": 4}),
]


def train(clients: Sequence[Client], name: str, cohort_size: int | None = None, **settings: Any) -> Training:
    method = make_method(name, clients, make_task(clients), **settings)
    training = make_training(method, clients, Plan(ROUNDS), cohort_size)
    training.run()
    return training


def scaled(clients: Sequence[Client], by: float) -> list[Client]:
    out = []
    for client in clients:
        raw = client.graph.edge_weights
        weights = np.ones(client.graph.edges.shape[1]) if raw is None else raw
        out.append(replace(client, graph=replace(client.graph, edge_weights=(weights * by).astype(np.float32))))
    return out


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=lambda v: v if isinstance(v, str) else str(v)[1:-1])
def test_weights_of_one_change_no_bit_and_others_do(name: str, settings: dict[str, Any]) -> None:
    clients = ragged_clients(SIZES)
    plain = train(clients, name, **settings).engine.personal()
    # Ones for one client, a tenth for another: each counts relative to the mean of its client.
    equal = train([*scaled(clients[:1], 1.0), *scaled(clients[1:], 0.1)], name, **settings).engine.personal()
    assert all(torch.equal(plain[key], tensor) for key, tensor in equal.items())
    training = train(with_weights(clients), name, **settings)
    weighted = training.engine.personal()
    differs = any(not torch.equal(plain[key], tensor) for key, tensor in weighted.items())
    assert differs == (not training.method.ignores_edge_weights())
    assert all(tensor.isfinite().all() for tensor in weighted.values())


@pytest.mark.parametrize("name", federated_methods())
def test_a_cohort_trains_as_its_clients_alone_at_any_scale(name: str) -> None:
    """FedHERO and FedIIH choose and route by scores, in which rounding may tip a balance; two rounds are no such case."""
    clients = with_weights(ragged_clients(SIZES))
    clients[1] = replace(clients[1], graph=replace(clients[1].graph, edge_weights=None))  # an owner without weights
    whole = train(clients, name).engine.personal()
    for alike in (train(clients, name, 1), train([*scaled(clients[:1], 1e6), *clients[1:]], name)):
        for key, tensor in alike.engine.personal().items():
            assert_near(tensor, whole[key], 2e-5)


@pytest.mark.parametrize("name", methods())
def test_a_client_without_edges_may_have_weights(name: str) -> None:
    (client,) = ragged_clients(SIZES[:1])
    bare = replace(client, graph=client.graph.some_edges(np.zeros(client.graph.edges.shape[1], dtype=bool)))
    plain, weighted = (train([one], name).engine.personal() for one in (bare, *with_weights([bare])))
    assert all(torch.equal(plain[key], tensor) for key, tensor in weighted.items())


def test_a_dense_backbone_is_the_same_with_any_weights() -> None:
    clients = ragged_clients(SIZES)
    plain = train(clients, "fedavg", model="mlp").engine.personal()
    weighted = train(with_weights(clients), "fedavg", model="mlp").engine.personal()
    assert all(torch.equal(plain[key], tensor) for key, tensor in weighted.items())


@pytest.mark.parametrize("name", ["fedavg", "fediih"])
def test_sites_train_on_weights_as_clients_in_process_do(name: str, tmp_path: Path) -> None:
    clients = with_weights(ragged_clients(SIZES))
    there = federation(tmp_path, clients, method=name, settings={"hidden": 8}, rounds=ROUNDS)
    there.run()
    here = train(clients, name)
    records = there.folder.seed(3).records()
    assert [record["train_loss"] for record in records] == pytest.approx(
        [record["train_loss"] for record in here.records], rel=1e-5
    )
    plain = train(ragged_clients(SIZES), name)
    assert records[-1]["train_loss"] != pytest.approx(plain.records[-1]["train_loss"], rel=1e-4)
    site = read_site(sorted(tmp_path.rglob("site.yaml"))[0])
    mine = predict(site)
    expected = logits_of(here.method, clients[0], here.progress.best.models).softmax(1)  # type: ignore[union-attr]
    assert_near(torch.from_numpy(mine.values), expected, 1e-4)
    assert not mine.warnings
    bare = tmp_path / "bare.npz"
    write_npz(replace(clients[0].graph, edge_weights=None), bare)
    assert any(
        "have no weights, and the model was trained on edges with weights" in w for w in predict(site, bare).warnings
    )


def weighted_graph() -> Graph:
    graph = own_graph(masks=True)
    weights = np.random.default_rng(1).uniform(0.5, 20.0, graph.edges.shape[1]).astype(np.float32)
    return replace(graph, edge_weights=weights)


def test_a_run_is_resumed_on_its_weights_and_exported_with_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graph = weighted_graph()
    options: dict[str, Any] = {"clients": 2, "rounds": 4, "settings": {"hidden": 8}, "checkpoint_seconds": 0.0}
    caplog.set_level(logging.INFO, "fedquilt")
    whole = run("quilt", graph.to_data(), out=tmp_path / "whole", **options)
    assert "Edges have weights (0.5" in caplog.text
    assert "each counts relative to the mean of its client." in caplog.text
    with pytest.raises(KeyboardInterrupt):
        run("quilt", graph, out=tmp_path / "half", watch=stop_after(0, 1), **options)
    again = resume(tmp_path / "half")
    for key, tensor in whole.models[0].items():
        assert torch.equal(again.models[0][key], tensor)
    assert MEAN_WEIGHT in whole.facts[0]["constants"][0]
    module = module_of(tmp_path / "whole", client=1)
    save_module(module, tmp_path / "exported")
    read, data = load_module(tmp_path / "exported"), graph.to_data()
    said = module(data)
    assert torch.equal(read(data), said)
    assert torch.equal(read(data.x, data.edge_index, data.edge_weight), said)
    data.edge_weight = data.edge_weight * 3.0  # filters have no self-loops, against which it would be more
    assert torch.allclose(read(data), said, atol=1e-5)
    data.edge_weight = data.edge_weight.flip(0)
    assert not torch.allclose(read(data), said, atol=1e-5)


def test_scenarios_and_estimates_take_weights_along() -> None:
    clients = with_weights(ragged_clients(SIZES))
    training = train(clients, "fedavg")
    guesses = infer_links(training.method, training.engine.personal(), clients, seed=0)
    assert all(np.isfinite(guess.auc) for guess in guesses.values())
    with mock.patch("fedquilt.training.memory_estimate.LARGEST", 8):
        assert client_memory(training.method, clients).state > 0
    graph = clients[0].graph
    kept = np.arange(graph.edges.shape[1]) % 2 == 0
    assert Client(0, graph.some_edges(kept), clients[0].split).edge_weights is not None
    with pytest.raises(FedquiltError, match=r"choose edges with Graph\.some_edges"):
        train([replace(clients[0], graph=replace(graph, edges=graph.edges[:, kept]))], "local")


def test_another_graph_is_weighed_against_the_training_graph(caplog: pytest.LogCaptureFixture) -> None:
    clients = with_weights(ragged_clients(SIZES))
    training = train(clients, "fedavg")
    module = module_of_personal(personal_of(training.method, clients[0], training.engine.personal()))
    data = clients[0].graph.to_data()
    said = module(data)
    assert_near(said.detach(), logits_of(training.method, clients[0], training.engine.personal()))
    data.edge_weight = (
        1e6 * data.edge_weight
    )  # a million times the weight of what it was trained on: the node itself is lost
    assert not torch.allclose(module(data), said, atol=1e-3)
    assert module(data).isfinite().all()
    assert not caplog.text
    data.edge_weight = None
    module(data.x, data.edge_index[:, :0])  # a graph without edges lacks nothing
    assert not caplog.text
    bare = module(data)
    assert "The edges of data have no weights, and the model was trained on edges with weights" in caplog.text
    assert not torch.allclose(bare, said, atol=1e-3)


def test_a_model_of_unweighted_edges_does_not_use_weights_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    clients = ragged_clients(SIZES)
    training = train(clients, "fedavg")
    module = module_of_personal(personal_of(training.method, clients[0], training.engine.personal()))
    data = clients[0].graph.to_data()
    said: Tensor = module(data)
    data.edge_weight = torch.arange(1.0, 1.0 + data.edge_index.shape[1])
    assert torch.equal(module(data), said)
    assert (
        "The edges of data have weights, which are not used: the model was trained on edges without weights"
        in caplog.text
    )
