"""Centralised: PyTorch Geometric on the whole graph, evaluated client by client; refused where clients keep their graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.cohort.client import Client, clients_of
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.pool import pooled_clients
from fedquilt.errors import FedquiltError
from fedquilt.export.sources import module_of
from fedquilt.federation.coordinator.config import FederationConfig
from fedquilt.federation.protocol import RefusedError, Request
from fedquilt.federation.site.permits import permitted_methods
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.preparation import Preparation
from fedquilt.graphs.protocol import Protocol
from fedquilt.methods.base import federated_methods, methods
from fedquilt.nn.models import common_start
from fedquilt.partition.partition import Partition
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.tasks.node_classification import accuracy
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import PlainGcn, make_method, make_training, pyg_loop, ragged_clients


def pooled(sparse: bool = False, overlapping: bool = False) -> tuple[Client, list[Client]]:
    """A client that holds everything, and four among which it is cut."""
    (whole,) = ragged_clients((60,), sparse)
    nodes = np.arange(60)
    share = {m: (nodes % 4 == m) | (overlapping & (nodes % 5 == m)) for m in range(4)}
    held = [np.flatnonzero(share[m]) for m in range(4)]
    clients = clients_of(whole.graph, Partition(held, "some", 0, "whole", 60, ""), whole.split)
    return whole, pooled_clients(clients, held, whole.graph)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("overlapping", [False, True], ids=["disjoint", "overlapping"])
def test_it_is_a_plain_gcn_on_the_whole_graph(sparse: bool, overlapping: bool) -> None:
    whole, clients = pooled(sparse, overlapping)
    method = make_method("centralised", clients, dropout=0.0, lr=0.01)
    (own,), _ = pyg_loop([whole], common_start(method.shapes(), 3, 1, torch.device("cpu")), 4, 1, 0.01)
    training = make_training(method, clients, Plan(4))
    training.run()
    models = training.engine.personal()
    for name, stacked in models.items():
        assert_near(stacked, own[name].expand_as(stacked))
    outputs = PlainGcn(whole, own)()
    cohort = training.engine.cohorts[0]
    mine = cohort.parts_of(method.logits(models, cohort))
    for logits, client in zip(mine, clients, strict=True):
        assert_near(logits, outputs[client.pooled.places].detach())
    right = (outputs.argmax(1).numpy() == whole.graph.y) & (whole.split == 2)
    for found, client in zip(accuracy(cohort, torch.cat(mine), cohort.test).tolist(), clients, strict=True):
        places = client.pooled.places
        assert found == pytest.approx(right[places].sum() / (client.split == 2).sum())


def test_dropout_is_part_of_it_and_cohorts_do_not_change_it() -> None:
    _, clients = pooled()
    method = make_method("centralised", clients)
    found = []
    for size in (None, 1):
        training = make_training(method, clients, Plan(3), size)
        training.run()
        found.append(training.engine.personal()["conv1.weight"])
    assert torch.equal(*found)
    plain = make_training(make_method("centralised", clients, dropout=0.0), clients, Plan(3))
    plain.run()
    assert not torch.equal(plain.engine.personal()["conv1.weight"], found[0])


def test_edges_between_clients_count() -> None:
    _, clients = pooled()
    method = make_method("centralised", clients)
    weights = method.personal(method.start(Cohort(clients)))
    without = [replace(client, pooled=None) for client in clients]
    assert not torch.allclose(method.logits(weights, Cohort(clients)), method.logits(weights, Cohort(without)))


def options(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"dataset": "patchwork", "clients": 3, "rounds": 2, "device": "cpu", "settings": {"hidden": 4}} | more


def resolved(**more: Any) -> ResolvedRun:
    return ResolvedRun(RunConfig.build(options(Path(), method="centralised", **more)))


@pytest.mark.parametrize(
    ("option", "value"),
    [("workers", 2), ("participation", 0.5), ("cohort_size", 2), ("hold_out_clients", 0.4), ("dp_clip", 1.0)],
)
def test_what_needs_clients_apart_is_refused(option: str, value: Any) -> None:
    with pytest.raises(FedquiltError, match=f"has everyone's graph in one place; leave out {option}"):
        resolved(**{option: value} | ({"dp_noise": 1.0} if option == "dp_clip" else {}))


def test_sites_and_their_coordinator_refuse_it(tmp_path: Path) -> None:
    sentence = "centralised has everyone's graph in one place; sites keep theirs to themselves"
    with pytest.raises(FedquiltError, match=sentence):
        FederationConfig.read({"out": str(tmp_path), "method": "centralised"})
    request = Request("round", "ab" * 8, 0, 0, -1, 0, 3, "centralised", {}, {})
    with pytest.raises(RefusedError, match=sentence):
        request.build_method()
    assert "centralised" not in permitted_methods("all")
    assert set(methods()) - set(federated_methods()) == {name for name, m in methods().items() if m.pools_graphs}


def test_a_run_pools_the_cut_graph_and_uses_everyones_statistics(caplog: pytest.LogCaptureFixture) -> None:
    graph = ragged_clients((60,))[0].graph
    scaled = replace(graph, x=graph.x * np.array([1000.0] + [1.0] * 9, np.float32), y=np.maximum(graph.y, 0))
    config = RunConfig.build(
        options(Path(), method="centralised", dataset="@given", prepare="standard", split="40/30/30")
    )
    run = ResolvedRun(config, (scaled, Protocol()))
    clients = run.clients(0)
    whole = clients[0].pooled.whole
    assert whole.graph.edges.shape == graph.edges.shape
    assert len({id(how) for how in run.preparations(0)}) == 1
    assert np.array_equal(whole.graph.x, Preparation.of(scaled.x, "standard").apply(scaled.x))
    with caplog.at_level("INFO"):
        run.announce(0)
    assert "everyone's graph is in one place, with the edges that the cut went through" in caplog.text


def test_graphs_of_different_owners_make_their_union(caplog: pytest.LogCaptureFixture) -> None:
    graphs: list[Graph] = [replace(c.graph, y=np.maximum(c.graph.y, 0)) for c in ragged_clients((30, 25))]
    with caplog.at_level("INFO"):
        run = fedquilt.run("centralised", graphs, rounds=2, device="cpu", settings={"hidden": 4})
    assert "between which there are no edges, so the whole is their union" in caplog.text
    assert len(run.models[0]["conv1.weight"]) == 2
    one = {name: tensor[:1] for name, tensor in run.models[0].items()}
    assert all(torch.equal(tensor, one[name].expand_as(tensor)) for name, tensor in run.models[0].items())


def test_the_exported_model_predicts_on_the_whole_graph_as_in_training() -> None:
    graph = replace(ragged_clients((60,))[0].graph, y=np.arange(60) % 3)
    run = fedquilt.run("centralised", graph, clients=3, rounds=2, device="cpu", prepare="none", settings={"hidden": 4})
    outputs = module_of(run, client=1)(graph.to_data()).softmax(1).detach().numpy()
    for client in range(3):
        own = run.predict(client=client)
        assert np.allclose(own.values, outputs[own.ids], atol=1e-5)
