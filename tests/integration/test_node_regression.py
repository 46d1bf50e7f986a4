"""Node regression from a user's table to predictions, in every command, from Python, and at sites."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import fedquilt
from fedquilt.cohort.client import Client
from fedquilt.datasets.entries.houses import house_districts, houses
from fedquilt.errors import FedquiltError
from fedquilt.export import load_module, module_of, save_module
from fedquilt.federation.protocol import ROUND, RefusedError, Request
from fedquilt.federation.site.config import read_site
from fedquilt.federation.site.predict import predict as predict_at_site
from fedquilt.federation.site.run_client import RunClient
from fedquilt.federation.site.site import open_site
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.label_numbers import presence
from fedquilt.graphs.split import TRAIN
from fedquilt.methods.base import methods
from fedquilt.methods.base_votes import AVERAGE_VOTES, VOTES
from fedquilt.methods.settings import as_dict
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import Wiretap, make_method, make_task, make_training, ragged_clients
from support.flower_doubles import federation, site_models

TASK = "node-regression"
NEED_CLASSES = {name for name in methods() if make_method(name, ragged_clients()).needs_classes()}


def numeric(clients: list[Client], unit: float = 1.0) -> list[Client]:
    """The clients with numbers that follow from their features as labels."""
    out = []
    for client in clients:
        weights = np.linspace(1, 2, client.graph.features)
        numbers = unit * (5 + client.graph.x @ weights + client.id)
        numbers[client.graph.y < 0] = np.nan
        graph = replace(client.graph, y=presence(numbers), classes=1, numbers=numbers)
        out.append(replace(client, graph=graph))
    return out


def write_tables(folder: Path, graph: Graph, owner: np.ndarray) -> Path:
    folder.mkdir()
    with (folder / "nodes.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["house", "price", "district", *graph.feature_names])
        for node in range(graph.nodes):
            price = "" if np.isnan(graph.numbers[node]) else graph.numbers[node]
            rows.writerow([f"h{node}", price, f"d{owner[node]}", *graph.x[node]])
    with (folder / "edges.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["source", "target"], *[[f"h{u}", f"h{v}"] for u, v in graph.edges.T]])
    (folder / "graph.yaml").write_text("id: house\nlabel: price\nclient: district\n")
    return folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("own") / "houses", houses(), house_districts())


def test_from_a_table_to_predictions_in_the_units_of_the_labels(tables: Path, here: Path, call: Callable) -> None:
    called = call(f"run --method fedper --dataset {tables} --task {TASK} --rounds 40 --out run")
    assert called.status == 0, called.err
    assert "r2 in %" in called.out
    result = json.loads(Path("run", "result.json").read_text())
    assert result["metric"] == "r2"
    assert result["test_mean"] > 70  # percent of the variance
    for line in ("show run", "report run --out report.html", "predict run --out own.csv", "predict run --out own.json"):
        called = call(line)
        assert called.status == 0, called.err
    rows = list(csv.DictReader((here / "own.csv").read_text().splitlines()))
    assert list(rows[0]) == ["client", "id", "part", "label", "value"]
    graph = houses()
    place = [int(row["id"][1:]) for row in rows]
    known = np.array([float(row["label"] or "nan") for row in rows])
    np.testing.assert_array_equal(known, graph.numbers[place])
    value, tests = np.array([float(row["value"]) for row in rows]), np.array([row["part"] == "test" for row in rows])
    assert {row["part"] for row in rows if not row["label"]} == {""}  # no label: in no part
    # The file's own figures are the run's: R2 of each client's test nodes, averaged.
    each = []
    for name in {row["client"] for row in rows}:
        mine = tests & np.array([row["client"] == name for row in rows])
        each.append(1 - np.square(value - known)[mine].sum() / np.square(known - known[mine].mean())[mine].sum())
    assert 100 * np.mean(each) == pytest.approx(result["test_mean"], abs=0.01)
    assert any(row["label"] is None for row in json.loads((here / "own.json").read_text()))

    # Another table has no prices. A model's units come with it.
    (here / "new").mkdir()
    with (here / "new" / "nodes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["house", *graph.feature_names], ["x", *graph.x[0]], ["y", *graph.x[599]]])
    (here / "new" / "edges.csv").write_text("source,target\nx,y\n")
    (here / "new" / "graph.yaml").write_text("id: house\n")
    called = call("predict run --graph new --client all --out new.csv")
    assert called.status == 0, called.err
    new = list(csv.DictReader((here / "new.csv").read_text().splitlines()))
    found = {(row["client"], row["id"]): float(row["value"]) for row in new}
    assert found["d5", "x"] > 1.4 * found["d0", "x"] > 100  # the same house costs more in the centre


def test_comparing_resuming_exporting_and_loading(tables: Path, tmp_path: Path, here: Path, call: Callable) -> None:
    called = call(
        f"compare --methods local,fedavg,fedssa --dataset {tables} --task {TASK} --rounds 3 --metric mae --out both"
    )
    assert called.status == 1  # the others are done
    assert "mae" in called.out
    assert "Method 'fedssa' needs classes" in called.out + called.err
    folder = f"{tmp_path}/run"
    options = {"task": TASK, "rounds": 4, "checkpoint_seconds": 0}
    run = fedquilt.run("fedavg", str(tables), out=folder, **options)
    assert fedquilt.resume(folder).result == run.result == fedquilt.load_run(folder).result
    module = module_of(folder, client=2)
    graph = houses()
    nodes = np.flatnonzero(house_districts() == 2)
    part = graph.subgraph(nodes)
    values = module(part.to_data())
    own = fedquilt.load_run(folder).predict(client=2).to_frame()
    np.testing.assert_allclose(values[:, 0].detach(), own["value"], rtol=1e-5)
    save_module(module, tmp_path / "model")
    np.testing.assert_array_equal(load_module(tmp_path / "model")(part.to_data()).detach(), values.detach())


def test_data_with_floats(tmp_path: Path) -> None:
    graph = houses()
    data = Data(
        x=torch.from_numpy(graph.x),
        edge_index=torch.from_numpy(graph.edges),
        y=torch.from_numpy(graph.numbers).float().unsqueeze(1),
    )
    run = fedquilt.run("local", data, clients=3, task=TASK, rounds=2)
    assert run.predict().to_frame()["value"].between(-500, 3000).all()
    with pytest.raises(FedquiltError, match="node-classification needs classes; choose --task node-regression"):
        fedquilt.run("local", data, clients=3, rounds=2)
    with pytest.raises(FedquiltError, match="The task node-regression has no classes to weight"):
        fedquilt.run("local", data, clients=3, rounds=2, task=TASK, class_weights="balanced")


@pytest.mark.parametrize("name", methods())
def test_each_method_learns_numbers_or_refuses(name: str) -> None:
    options = {"task": TASK, "partition": "natural", "prepare": "standard", "rounds": 2, "settings": {}}
    if name in NEED_CLASSES:
        with pytest.raises(FedquiltError, match=f"Method '{name}' needs classes, which the task {TASK} has not"):
            fedquilt.run(name, "houses", **options)
        return
    clients = numeric(ragged_clients((25, 14)))
    context = make_task(clients, task=TASK, metric="r2", outputs=1)
    found = []
    for unit in (
        1.0,
        1000.0,
    ):  # a method's weights do not depend on the unit, and hidden labels change nothing but votes
        there = numeric(ragged_clients((25, 14)), unit)
        for client in there:
            client.graph.numbers[(client.split != TRAIN) & (client.graph.y >= 0)] *= unit
        training = make_training(make_method(name, there, context), there, Plan(3, 1.0))
        tap = Wiretap(training.engine)
        training.run()
        found.append((tap, training))
    (one, first), (two, second) = found
    for mine, other in zip(one.ups + one.downs, two.ups + two.downs, strict=True):
        for key in mine.keys() - {VOTES, AVERAGE_VOTES}:
            torch.testing.assert_close(other[key], mine[key], rtol=1e-3, atol=1e-4)
    assert first.records[-1]["val"] != second.records[-1]["val"]


def test_quilt_weighs_its_views_by_a_metric_without_a_unit() -> None:
    """By R2 where the run's metric is in the unit of the numbers, so that no vote depends on it."""
    votes = []
    for unit in (1.0, 1000.0):
        clients = numeric(ragged_clients((40, 25)), unit)
        method = make_method("quilt", clients, make_task(clients, task=TASK, metric="mae", outputs=1))
        assert method.vote_metric.name == "r2"  # type: ignore[attr-defined]
        training = make_training(method, clients, Plan(5, 1.0))
        training.run()
        votes.append(training.engine.state()[VOTES])
    assert_near(votes[0], votes[1], 1e-3)
    assert (votes[0] < 1).any()


def test_sites_learn_what_the_simulation_learns(tmp_path: Path) -> None:
    clients = numeric(ragged_clients((25, 14, 31)))
    method = make_method("fedper", clients, make_task(clients, task=TASK, metric="r2", outputs=1))
    here = make_training(method, clients, Plan(3, 1.0))
    here.run()
    there = federation(tmp_path, clients, method="fedper", task=TASK)
    there.run()
    for mine, other in zip(there.folder.seed(3).records(), here.records, strict=True):
        assert mine["clients"]["test"] == pytest.approx(other["clients"]["test"], rel=1e-5)
    for m, (tensors, facts) in enumerate(site_models(tmp_path)):
        for name, tensor in tensors.items():
            assert_near(tensor, here.progress.best.models[name][m])
        known = clients[m].graph.numbers[clients[m].split == TRAIN]
        assert sorted(facts["constants"].values()) == pytest.approx(sorted([known.mean(), known.std()]))
    predicted = predict_at_site(read_site(tmp_path / "site-0" / "site.yaml")).to_frame()
    assert predicted["value"].mean() == pytest.approx(np.nanmean(clients[0].graph.numbers), rel=0.5)


def test_sites_with_whole_numbers_need_not_have_the_same(tmp_path: Path) -> None:
    clients = ragged_clients((25, 14))
    clients[0] = replace(clients[0], graph=replace(clients[0].graph, classes=7))
    there = federation(tmp_path, clients, method="fedavg", task=TASK)
    assert np.isfinite(there.run()["test_mean"])
    with pytest.raises(FedquiltError, match="Method 'fedssa' needs classes, which the task node-regression has not"):
        federation(tmp_path / "other", numeric(clients), method="fedssa", task=TASK).run()


def test_a_site_with_named_classes_refuses_without_naming_them(tmp_path: Path) -> None:
    clients = ragged_clients((25, 14))
    named = [replace(c, graph=replace(c.graph, class_names=("secret", "b", "c"))) for c in clients]
    with pytest.raises(
        FedquiltError, match="Site 'site-0' has classes with names as labels, and node-regression needs"
    ) as caught:
        federation(tmp_path, named, method="fedavg", task=TASK).run()
    assert "secret" not in str(caught.value)
    site = open_site(tmp_path / "site-0" / "site.yaml")
    method = make_method("fedavg", clients, make_task(clients, task=TASK, metric="r2", outputs=1))
    request = Request(ROUND, "0" * 16, 0, 0, -1, 0, 3, "fedavg", as_dict(method.settings), method.context.to_dict())
    with pytest.raises(RefusedError, match="has other features or classes than the run") as caught:
        RunClient(site, request)
    assert "secret" not in str(caught.value)
