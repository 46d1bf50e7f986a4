"""Predictions from a run's models: for its clients' own nodes, and for nodes that it never saw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.cohort.cohort import Cohort
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.split import NONE, TEST, TRAIN, VAL
from fedquilt.methods.base import methods
from fedquilt.reports.confusion import run_tables
from fedquilt.reports.read_run import read_run
from fedquilt.runs import ground
from fedquilt.runs.finished import Run
from fedquilt.runs.predict import client_count, personal_of_run, predict_run
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.runs.seal import Difference
from support.federations import small_settings
from support.hospitals import write_hospitals
from support.named_runs import CLASSES, FEATURES, named_run, write_tables
from support.small_runs import SMALL, own_graph

PARTS = {TRAIN: "train", VAL: "val", TEST: "test", NONE: ""}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("named")
    named_run(folder, seeds=[0, 4])
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return fedquilt.load_run(folder / "run", device="cpu")


def test_own_nodes_by_each_clients_own_model(run: Run, folder: Path) -> None:
    for seed in (0, 4):
        found = predict_run(run, seed=seed, device="cpu").to_frame()
        assert len(found) == 60
        assert set(found["class"]) <= set(CLASSES)
        graph = load_graph(folder / "tables")[0]
        label = dict(zip(graph.ids.tolist(), graph.y.tolist(), strict=True))
        names = graph.class_names
        assert all(names[label[row.id]] == row.label for row in found.itertuples())
        test = found[found.part == "test"]
        right = (test["class"] == test["label"]).groupby(test["client"]).mean() * 100
        summary = fedquilt.load_run(folder / "run").result["seeds"][[0, 4].index(seed)]
        assert right.mean() == pytest.approx(summary["test"])
        assert np.allclose(found[[f"p_{name}" for name in names]].sum(axis=1), 1.0, atol=1e-5)


def test_defaults_that_changed_since_do_not_matter(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The models are stored with their settings; a run cannot be resumed with other ones, but its models predict."""
    expected = predict_run(run, device="cpu").to_frame()
    monkeypatch.setattr(ground, "_settings_differences", lambda *_: [Difference("the setting lr comes out otherwise")])
    assert predict_run(run, device="cpu").to_frame().equals(expected)


def test_one_client_is_a_part_of_all(run: Run) -> None:
    every, one = predict_run(run, device="cpu").to_frame(), predict_run(run, 1, device="cpu").to_frame()
    mine = every[every.client == 1].reset_index(drop=True)
    assert mine.drop(columns=[c for c in mine if c.startswith("p_")]).equals(
        one.drop(columns=[c for c in one if c.startswith("p_")])
    )
    assert np.allclose(mine.filter(like="p_"), one.filter(like="p_"), atol=1e-6)
    assert predict_run(run, "1", device="cpu").ids.tolist() == one["id"].tolist()


@pytest.mark.parametrize("name", methods())
def test_every_method_predicts_for_its_clients_and_for_others(name: str) -> None:
    """A run in memory of a graph given as an object, without names; what it says is what its network says."""
    run = fedquilt.run(
        name, own_graph(), **{**SMALL, "settings": small_settings(name), "rounds": 2, "partition": "random"}
    )
    own = run.predict(client=2)
    assert run.origin is not None
    resolved = ResolvedRun(*run.origin)
    client = resolved.clients(0)[2]
    assert own.ids.tolist() == resolved.cut(0)[0].nodes[2].tolist()
    assert own.parts is not None
    assert own.labels is not None
    assert own.parts.tolist() == [PARTS[int(part)] for part in client.split]
    assert own.labels.tolist() == [str(label) for label in client.graph.y]
    method = personal_of_run(run, 2).method
    with torch.no_grad():
        outputs = method.logits({n: w[2:3] for n, w in run.models[0].items()}, Cohort([client]))
    assert np.allclose(own.values, outputs.softmax(1), atol=1e-5)
    other = run.predict(client=2, data=resolved.raw_clients(0)[2].graph)  # its features as the user has them
    # Alone, a client's nodes lack the neighbours that they have where everyone's graph is in one place.
    assert np.allclose(other.values, own.values, atol=1e-5) != method.pools_graphs
    assert other.parts is None


def test_new_nodes_by_one_client_by_all_and_by_their_mean(run: Run, folder: Path) -> None:
    new = write_tables(folder / "new", nodes=7, seed=9, features=FEATURES[::-1])
    each = [predict_run(run, number, new, device="cpu") for number in range(3)]
    assert all(one.ids.tolist() == [f"p{n}" for n in range(7)] for one in each)
    every = predict_run(run, "all", new, device="cpu")
    assert every.clients is not None
    assert every.clients.tolist() == sorted([0, 1, 2] * 7)
    assert np.array_equal(every.values, np.concatenate([one.values for one in each]))
    mean = predict_run(run, "mean", new, device="cpu")
    assert np.allclose(mean.values, np.mean([one.values for one in each], axis=0))
    assert mean.to_frame()["client"].tolist() == ["mean"] * 7
    (folder / "bare.csv").write_bytes((new / "nodes.csv").read_bytes())
    bare = predict_run(run, 0, folder / "bare.csv", device="cpu")
    assert "without edges" in bare.warnings[0]
    assert not np.allclose(bare.values, each[0].values)


def test_whose_model_has_to_be_said(run: Run, folder: Path) -> None:
    assert client_count(run, 0) == 3
    with pytest.raises(FedquiltError, match=r"3 clients \(0 to 2\).*'all'.*'mean'"):
        predict_run(run, data=folder / "tables")
    for client, words in ((3, "no client 3; choose one of 0 to 2"), ("anna", "no client 'anna'"), (-1, "no client -1")):
        with pytest.raises(FedquiltError, match=words):
            predict_run(run, client, folder / "tables")
    with pytest.raises(FedquiltError, match="own nodes are predicted by its own model"):
        predict_run(run, "mean")
    with pytest.raises(FedquiltError, match="no models of seed 7; choose one of: 0, 4"):
        predict_run(run, seed=7)
    with pytest.raises(FedquiltError, match="sites, who have theirs"):
        predict_run(Run({}), 0)


def test_a_graph_that_changed_is_refused_for_own_nodes_only(tmp_path: Path) -> None:
    named_run(tmp_path)
    write_tables(tmp_path / "tables", seed=1)
    run = fedquilt.load_run(tmp_path / "run")
    with pytest.raises(FedquiltError, match=r"are not those that the models .* were trained on: the graph .* changed"):
        run.predict()
    assert len(run.predict(client=0, data=tmp_path / "tables")) == 60


def test_new_nodes_do_not_need_the_graph_of_the_run(tmp_path: Path) -> None:
    named_run(tmp_path)
    (tmp_path / "tables").rename(tmp_path / "elsewhere")
    assert len(fedquilt.load_run(tmp_path / "run").predict(0, tmp_path / "elsewhere")) == 60
    with pytest.raises(FedquiltError, match="does not know its graph"):
        Run({}, models={0: {"w": torch.zeros(2, 1)}}).predict()


def test_clients_that_have_names_are_asked_for_and_listed_by_them(tmp_path: Path) -> None:
    folders = write_hospitals(tmp_path)
    run = fedquilt.run(
        "fedavg", clients_from=[str(tmp_path / "hospital-*")], rounds=2, device="cpu", out=tmp_path / "run"
    )
    frame = run.predict().to_frame()
    assert list(dict.fromkeys(frame["client"])) == ["hospital-a", "hospital-b", "hospital-c"]
    assert set(frame["id"][frame["client"] == "hospital-b"]) == set(load_graph(folders[1])[0].ids.tolist())
    one = fedquilt.load_run(tmp_path / "run").predict(client="hospital-b", data=folders[0])
    assert one.clients is not None
    assert set(one.clients.tolist()) == {"hospital-b"}
    assert np.array_equal(one.values, run.predict(client=1, data=folders[0]).values)
    with pytest.raises(FedquiltError, match="no client 'hospital-x'; choose one of hospital-a, hospital-b, hospital-c"):
        run.predict(client="hospital-x")
    with pytest.raises(FedquiltError, match=r"3 clients \(hospital-a, hospital-b, hospital-c\), each with a model"):
        run.predict(data=folders[0])
    tables = run_tables(read_run(tmp_path / "run"), "hospital-c")
    assert str(tables[0].title) == "Classes: hospital-c, 1 seed, test nodes"
    with pytest.raises(FedquiltError, match="no client ward; choose one of: hospital-a, "):
        run_tables(read_run(tmp_path / "run"), "ward")
