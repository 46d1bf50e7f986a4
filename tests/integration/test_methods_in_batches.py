"""Training on parts of clients' graphs: for every method that can, the same whatever the cohort; as plain Cluster-GCN."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.cohort.batches import Schedule
from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.export import module_of
from fedquilt.graphs.split import TRAIN
from fedquilt.methods.base import Method, methods
from fedquilt.nn import optim
from fedquilt.nn.dropout import Dropout
from fedquilt.tasks.node_classification import NodeClassification
from fedquilt.training.plan import Plan
from support.federations import (
    PlainGcn,
    Wiretap,
    assert_same,
    make_method,
    make_task,
    make_training,
    ragged_clients,
    relabelled,
    without_seconds,
)
from support.small_runs import SMALL, StopAfter, own_graph

SIZES, NODES = (40, 9, 60, 14), 15
DRAWN = {"batch_nodes": 10, "fan_out": (3, 2)}  # neighbours are drawn in the place of clusters


def batched(name: str, clients: list[Client], nodes: int = NODES, epochs: int = 2, **settings: Any) -> Method:
    return make_method(name, clients, make_task(clients, epochs=epochs, batch_nodes=nodes), **settings)


def can(name: str) -> bool:
    return not make_method(name, ragged_clients()).needs_whole_graphs()


ABLE = [name for name in methods() if can(name)]
# What differs in how a batch or an epoch acts; the others, which train as FedAvg does, in `make test-long`.
OWN = ("fedavg", "feddyn", "fednova", "fedproto", "fedpub", "fedrep", "fedsheafhn", "quilt", "scaffold")
VARIANTS = [pytest.param(name, {}, id=name, marks=() if name in OWN else pytest.mark.long) for name in ABLE] + [
    pytest.param("fedavg", {"model": kind}, id=f"fedavg-{kind}", marks=() if kind == "gat" else pytest.mark.long)
    for kind in ("gat", "gin", "gcnii", "sgc", "appnp", "gamlp")
]


def test_which_methods_can() -> None:
    assert {"local", "fedavg", "fedprox", "fedper", "fedpub", "quilt", "scaffold", "fednova", "ditto"} <= set(ABLE)
    for name in ("fediih", "fedssa", "fedhero", "centralised", "majority"):
        assert name not in ABLE
    assert "identity" in make_method("quilt", ragged_clients(), identity=4, masks=False).needs_whole_graphs()


@pytest.mark.parametrize("drawn", [False, True], ids=["clusters", "neighbours"])
@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_a_cohort_of_all_is_cohorts_of_one(
    name: str, settings: dict[str, Any], drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optim, "EPSILON", 1e-4)  # what is only rounding should not become a step of Adam
    clients = ragged_clients(SIZES)
    context = make_task(clients, epochs=2, **(DRAWN if drawn else {"batch_nodes": NODES}))
    found = []
    for cohort_size in (None, 1):
        training = make_training(make_method(name, clients, context, **settings), clients, Plan(2, 0.7), cohort_size)
        training.run()
        found.append(training)
    one, two = (training.engine.state() for training in found)
    assert sorted(one) == sorted(two)
    for key in one:
        assert torch.allclose(one[key].float(), two[key].float(), atol=2e-5, equal_nan=True), key


@pytest.mark.parametrize("name", ["fedavg", "fedpub", "fednova", "scaffold", "ditto", "fedrep"])
def test_accumulated_gradients_are_those_of_the_full_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no edge is read, none can be lost: then they are the same, whatever the method does with them."""
    monkeypatch.setattr(optim, "EPSILON", 1e-4)
    clients, settings = ragged_clients(SIZES), {"model": "mlp", "dropout": 0.0}
    found = []
    for sums in ({}, {"batch_nodes": NODES, "batch_sums": True}):
        for cohort_size in (None, 1)[: 1 + len(sums)]:
            method = make_method(name, clients, make_task(clients, epochs=2, **sums), **settings)
            found.append(make_training(method, clients, Plan(3, 0.7), cohort_size))
            found[-1].run()
    full, *others = (training.engine.state() for training in found)
    assert len(others) == 2
    for other in others:
        for key in (key for key in full if not key.startswith("dropout.")):  # a clock counts batches
            assert torch.allclose(full[key].float(), other[key].float(), atol=2e-5, equal_nan=True), key


@pytest.mark.parametrize("name", ["local", "fedavg", "fedpub"])
def test_all_neighbours_of_all_training_nodes_are_the_full_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Means over neighbours two steps away need no more; a convolution also reads the degrees of the last ones."""
    monkeypatch.setattr(optim, "EPSILON", 1e-4)
    clients, settings = ragged_clients(SIZES), {"model": "sage", "dropout": 0.0}
    most = max(client.training_nodes.size for client in clients)
    assert most < max(SIZES)
    found = []
    for sizes in ({}, {"batch_nodes": most, "fan_out": (99, 99)}, {"batch_nodes": most, "fan_out": (1, 1)}):
        method = make_method(name, clients, make_task(clients, epochs=2, **sizes), **settings)
        found.append(make_training(method, clients, Plan(3)))
        found[-1].run()
    full, whole, few = (training.engine.state() for training in found)
    for key in (key for key in full if not key.startswith("dropout.")):
        assert torch.allclose(full[key].float(), whole[key].float(), atol=2e-5, equal_nan=True), key
    assert not torch.allclose(full["model.conv1.weight"], few["model.conv1.weight"], atol=1e-3)
    # Evaluation is of the whole graph, however few neighbours were drawn to train.
    alone = found[2].method.logits(found[2].engine.personal(), Cohort(clients))
    exact = replace(found[2].method.context, batch_nodes=0, fan_out=())
    whole_graph = type(found[2].method)(found[2].method.settings, exact)
    assert torch.allclose(alone, whole_graph.logits(found[2].engine.personal(), Cohort(clients)), atol=1e-5)


def test_neighbours_are_an_option_of_a_run() -> None:
    options = {"rounds": 2, "device": "cpu", "settings": {"hidden": 8}, "batch": "neighbours", "batch_nodes": 20}
    one, two = (fedquilt.run("fedavg", "patchwork", fan_out=fan_out, **options) for fan_out in ([2, 2], [5, 5]))
    again = fedquilt.run("fedavg", "patchwork", fan_out=[2, 2], cohort_size=1, **options)
    assert one.history["train_loss"].iloc[-1] != two.history["train_loss"].iloc[-1]
    assert one.history["train_loss"].iloc[-1] == pytest.approx(again.history["train_loss"].iloc[-1], abs=1e-5)


def test_accumulated_is_an_option_of_a_run() -> None:
    options = {"rounds": 2, "device": "cpu", "settings": {"hidden": 8}, "batch_nodes": 20}
    one, two = (fedquilt.run("fedavg", "patchwork", batch=batch, **options) for batch in ("accumulated", "clusters"))
    assert one.history["train_loss"].iloc[-1] != two.history["train_loss"].iloc[-1]


@pytest.mark.parametrize("name", ["fedavg", "quilt", "fedpub"])
def test_a_batch_that_holds_everything_is_the_full_batch(name: str) -> None:
    clients = ragged_clients(SIZES)
    full = make_training(make_method(name, clients, make_task(clients, epochs=2)), clients, Plan(3))
    one = make_training(batched(name, clients, nodes=60), clients, Plan(3))
    full.run()
    one.run()
    assert_same(full.engine.state(), one.engine.state())
    assert without_seconds(full.records) == without_seconds(one.records)


def test_a_client_that_fits_trains_as_ever_beside_one_that_does_not() -> None:
    clients = ragged_clients(SIZES)
    full = make_training(make_method("local", clients, make_task(clients, epochs=3)), clients, Plan(2))
    some = make_training(batched("local", clients, epochs=3), clients, Plan(2))
    full.run()
    some.run()
    whole, parts = full.engine.state(), some.engine.state()
    for key in whole:
        for m, size in enumerate(SIZES):
            if size <= NODES:
                assert torch.allclose(whole[key][m].float(), parts[key][m].float(), atol=1e-6), (key, m)
    assert not torch.allclose(whole["model.conv1.weight"][0], parts["model.conv1.weight"][0], atol=1e-3)


def test_steps_are_those_of_plain_cluster_gcn() -> None:
    """Two epochs of one client against PyTorch Geometric's layers and Adam on the induced subgraphs, without dropout."""
    clients = ragged_clients((60,))
    method = batched("local", clients, dropout=0.0, lr=0.02)
    cohort = Cohort(clients)
    state = method.start(cohort)
    start = {name.removeprefix("model."): w[0].clone() for name, w in state.items() if name.startswith("model.")}
    net = PlainGcn(clients[0], start)
    adam = torch.optim.Adam(net.parameters(), lr=0.02)
    steps, loss = 0, 0.0
    for turn in Schedule(cohort, NODES, method.context.seed, [0], [2]).turns({}):
        part = turn.batch.members[0]
        nodes = _numbers(clients[0], part)
        inside = np.isin(clients[0].graph.edges, nodes).all(0)
        edges = np.searchsorted(nodes, clients[0].graph.edges[:, inside])
        net.x = torch.from_numpy(clients[0].graph.x[nodes])
        net.edges = torch.from_numpy(np.concatenate([edges, edges[::-1]], axis=1))
        train = torch.from_numpy(clients[0].split[nodes] == TRAIN)
        adam.zero_grad()
        each = torch.nn.functional.cross_entropy(net()[train], torch.from_numpy(clients[0].graph.y[nodes])[train])
        each.backward()
        adam.step()
        loss += float(each.detach()) * int(train.sum()) / len(clients[0].training_nodes) * (turn.epoch == 1)
        steps += 1
    assert steps == 8
    update = method.local_update(state, cohort, {}, 0)
    for name, w in net.weights().items():
        assert torch.allclose(state[f"model.{name}"][0], w, atol=1e-5), name
    assert float(update.loss[0]) == pytest.approx(loss, abs=1e-5)
    # Evaluation is of the whole graph: exact, not that of a batch.
    whole = PlainGcn(clients[0], net.weights())()
    assert torch.allclose(method.logits(update.personal, cohort), whole, atol=1e-5)


def _numbers(client: Client, part: Client) -> np.ndarray:
    """The numbers of a part's nodes in the whole graph, found by their features, which differ from node to node."""
    place = {row.tobytes(): number for number, row in enumerate(np.asarray(client.graph.x))}
    return np.array([place[row.tobytes()] for row in np.asarray(part.graph.x)])


@pytest.mark.parametrize("sizes", [{"batch_nodes": NODES}, DRAWN], ids=["clusters", "neighbours"])
@pytest.mark.parametrize("name", ["fedavg", "quilt", "fedproto"])
def test_hidden_labels_change_nothing(name: str, sizes: dict[str, Any]) -> None:
    clients = ragged_clients(SIZES)
    found = []
    for some in (clients, relabelled(clients, name)):
        training = make_training(make_method(name, some, make_task(some, epochs=2, **sizes)), some, Plan(2))
        tap = Wiretap(training.engine)
        training.run()
        found.append((tap, training))
    (one, first), (two, second) = found
    for mine, other in zip(one.ups + one.downs, two.ups + two.downs, strict=True):
        assert_same(mine, other)
    assert_same(first.engine.personal(), second.engine.personal())
    assert first.records[-1]["test"] != second.records[-1]["test"]


def test_balanced_classes_are_those_of_the_client() -> None:
    """Not those of a batch: w(c) = 1 / n_c with the client's n_c, normalised over the batch."""
    clients = ragged_clients(SIZES)
    context = make_task(clients, batch_nodes=NODES, class_weights="balanced")
    method = make_method("local", clients, context)
    turn = next(iter(Schedule(Cohort(clients), NODES, 0, [0] * 4, [1] * 4).turns({})))
    found = method.task._row_weights(turn.batch)  # type: ignore[attr-defined]
    first = 0
    for client, part in zip(clients, turn.batch.members, strict=True):
        counts = np.bincount(client.graph.y[client.training_nodes], minlength=3)
        weight = 1.0 / counts[part.graph.y[part.training_nodes]]
        assert np.allclose(found[first : first + weight.size].numpy(), weight / weight.sum(), atol=1e-6)
        first += weight.size


def test_scaffold_and_fednova_count_steps() -> None:
    clients = ragged_clients(SIZES)
    cohort = Cohort(clients)
    nova = batched("fednova", clients)
    assert nova.local_update(nova.start(cohort), cohort, {}, 0).upload["effort"].tolist() == [3.0, 1.0, 4.0, 1.0]
    scaffold = batched("scaffold", clients, epochs=1, dropout=0.0, optimiser="sgd", lr=1e-9)
    state = scaffold.start(cohort)
    scaffold.local_update(state, cohort, {}, 0)
    # With next to no movement, the control variate is the mean of the gradients of the epoch's batches.
    plain = batched("local", clients, epochs=1, dropout=0.0)
    fresh, total = plain.start(cohort), torch.zeros_like(state["model.conv2.weight"][0])
    for turn in Schedule(cohort, NODES, 3, [0] * 4, [1] * 4).turns({}):
        calm = Dropout(0.0, torch.zeros(4, dtype=torch.int64), 0)
        grads, _ = plain.gradients(fresh, turn.batch, calm, {})  # type: ignore[attr-defined]
        total += grads["model.conv2.weight"][2] / 4
    assert torch.allclose(state["control.conv2.weight"][2], total, atol=1e-6)


@pytest.mark.parametrize("batch", ["clusters", "neighbours"])
def test_a_run_is_resumed_bit_by_bit(tmp_path: Path, batch: str) -> None:
    options = SMALL | {"method": "fedavg", "batch": batch, "batch_nodes": 5, "checkpoint_seconds": 0.0}
    whole = fedquilt.run(dataset=own_graph(), out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run(dataset=own_graph(), out=tmp_path / "cut", watch=StopAfter(0, 1, KeyboardInterrupt), **options)
    rest = fedquilt.resume(tmp_path / "cut")
    assert without_seconds(rest.records[0]) == without_seconds(whole.records[0])
    assert_same(rest.models[0], whole.models[0])
    full = fedquilt.run(dataset=own_graph(), **(SMALL | {"method": "fedavg"}))
    assert full.records[0][0]["train_loss"] != whole.records[0][0]["train_loss"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "fedssa", "batch": "clusters"}, "cannot train on parts of a client's graph: its filter bases"),
        ({"method": "fedavg", "batch_nodes": 50}, "a step reads the whole graph; say batch=clusters"),
        ({"method": "fedavg", "batch": "parts"}, "batch"),
        ({"method": "fedavg", "batch": "clusters", "fan_out": [5]}, "no neighbours are drawn; say batch=neighbours"),
        ({"method": "fedavg", "batch": "neighbours", "fan_out": [5, 0]}, "fan_out"),
        ({"method": "fedavg", "batch": "neighbours", "fan_out": []}, "fan_out"),
        ({"method": "fedavg", "batch": "clusters", "batch_nodes": 0}, "batch_nodes"),
    ],
)
def test_what_cannot_be_is_refused_before_training(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedquiltError, match=sentence):
        fedquilt.run(dataset=own_graph(), **(SMALL | options))


@pytest.mark.parametrize("batch", ["clusters", "neighbours"])
def test_a_saved_model_predicts_as_on_the_whole_graph(tmp_path: Path, batch: str) -> None:
    graph = own_graph()
    options = SMALL | {"method": "fedavg", "batch": batch, "batch_nodes": 10, "prepare": "none", "rounds": 2}
    fedquilt.run(dataset=graph, out=tmp_path / "run", **options)
    data = graph.to_data()
    module = module_of(fedquilt.load_run(tmp_path / "run"), client=0)
    assert module.personal.method.context.batch_nodes == 10
    own, context = module.personal.method, replace(module.personal.method.context, batch_nodes=0)
    whole = replace(module.personal, method=type(own)(own.settings, context))
    with torch.no_grad():
        assert torch.allclose(module(data), whole.logits(graph), atol=1e-5)


def test_a_task_that_hides_edges_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    make = NodeClassification.clients

    def hiding(self: NodeClassification, *args: Any) -> list[Client]:
        return [replace(client, held_out={"edges": client.graph.edges[:, :1]}) for client in make(self, *args)]

    monkeypatch.setattr(NodeClassification, "clients", hiding)
    with pytest.raises(FedquiltError, match="hides parts of the clients' graphs"):
        fedquilt.run(dataset=own_graph(), **(SMALL | {"method": "fedavg", "batch": "clusters", "batch_nodes": 10}))
