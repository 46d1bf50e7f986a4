"""Predictions from a site's own model: for every method, for its graph and for one that has grown."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from fedquilt.errors import FedquiltError
from fedquilt.federation.site.config import load_site_graph, read_site
from fedquilt.federation.site.predict import predict
from fedquilt.federation.site.state import SiteState
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.methods.base import federated_methods
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.personal_model import model_facts
from support.clients import assert_near
from support.federations import registered
from support.trained_sites import as_file, grown, grown_since, logits_of, make_site, trained, write_site


def probabilities(method: Any, client: Any, models: Any) -> torch.Tensor:
    return logits_of(method, client, models).softmax(1)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", federated_methods())
def test_every_method_predicts_for_its_graph_and_for_one_that_has_grown(
    name: str, sparse: bool, tmp_path: Path
) -> None:
    path, method, client, models = make_site(tmp_path, name, sparse=sparse)
    site = read_site(path)
    here = predict(site)
    assert_near(torch.from_numpy(here.values), probabilities(method, client, models))
    assert list(here.ids[:2]) == ["node-0", "node-1"]
    assert here.names == ("blue", "green", "red")
    later = grown_since(method, client)
    write_npz(later.graph, tmp_path / "later.npz")
    there = predict(site, tmp_path / "later.npz")
    assert_near(torch.from_numpy(there.values), probabilities(method, later, models))
    assert list(there.ids) == list(range(later.graph.nodes))
    assert there.names == here.names


def test_what_is_written_is_what_is_said(tmp_path: Path) -> None:
    path, *_ = make_site(tmp_path)
    predictions = predict(read_site(path))
    predictions.write(tmp_path / "out.csv")
    assert (tmp_path / "out.csv").stat().st_mode & 0o777 == 0o600
    with open(tmp_path / "out.csv", newline="") as file:
        heading, *rows = csv.reader(file)
    assert heading == ["id", "class", "p_blue", "p_green", "p_red"]
    assert [row[0] for row in rows] == list(predictions.ids)
    for row, chances in zip(rows, predictions.values, strict=True):
        assert row[1] == ("blue", "green", "red")[int(chances.argmax())]
        assert [float(cell) for cell in row[2:]] == pytest.approx(list(chances), abs=1e-5)
    assert np.allclose(predictions.values.sum(1), 1.0, atol=1e-5)


def test_a_graph_without_names_and_names_with_commas(tmp_path: Path) -> None:
    path, *_ = make_site(tmp_path, named=False)
    assert next(predict(read_site(path)).rows()) == ["id", "class", "p_0", "p_1", "p_2"]
    _, _, client, _ = make_site(tmp_path)
    odd = np.array([f'"{n}", =1\n' for n in range(client.graph.nodes)])
    predictions = predict(read_site(path), replace(client.graph, ids=odd))
    predictions.write(tmp_path / "out.csv")
    with open(tmp_path / "out.csv", newline="") as file:
        assert [row[0] for row in csv.reader(file)][1:] == list(odd)


def test_labels_are_not_needed_and_do_not_matter(tmp_path: Path) -> None:
    path, method, client, models = make_site(tmp_path, "fedssa")
    site, expected = read_site(path), probabilities(method, client, models)
    graph = client.graph
    blank = replace(graph, y=np.full(graph.nodes, -1), classes=0)
    other = replace(graph, y=np.roll(graph.y, 1))
    data = Data(x=torch.from_numpy(graph.x), edge_index=torch.from_numpy(graph.edges))
    np.savez(tmp_path / "bare.npz", edge_index=graph.edges, x=graph.x)
    np.savez(tmp_path / "blank.npz", edge_index=graph.edges, x=graph.x, y=blank.y)
    for given in (blank, other, data, tmp_path / "bare.npz", str(tmp_path / "blank.npz")):
        assert_near(torch.from_numpy(predict(site, given).values), expected)


def test_tables_of_new_nodes(tmp_path: Path) -> None:
    path, _, client, _ = make_site(tmp_path)
    new = tmp_path / "new"
    new.mkdir()
    columns = [f"f{n}" for n in range(client.graph.features)]
    rows = [f"p{n},,{','.join('0.5' for _ in columns)}" for n in range(3)]
    (new / "nodes.csv").write_text("\n".join([f"id,label,{','.join(columns)}", *rows]) + "\n")
    (new / "edges.csv").write_text("source,target\np0,p1\n")
    predictions = predict(read_site(path), new)
    assert list(predictions.ids) == ["p0", "p1", "p2"]
    assert np.allclose(predictions.values[0], predictions.values[1])


def shuffled(graph: Graph, seed: int) -> Graph:
    """The same graph with its features in another order."""
    order = np.random.default_rng(seed).permutation(graph.features)
    names = tuple((graph.feature_names or ())[n] for n in order)
    return replace(graph, x=graph.x[:, order], feature_names=names)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", ["fedavg", "fedssa", "fedhero", "quilt"])
def test_features_are_told_by_their_names(name: str, sparse: bool, tmp_path: Path) -> None:
    path, *_ = make_site(tmp_path, name, sparse=sparse)
    site = read_site(path)
    expected, own = predict(site).values, load_site_graph(site)
    for seed in range(3):
        other = shuffled(own, seed)
        assert np.array_equal(predict(site, other).values, expected)
        write_npz(other, tmp_path / "other.npz")
        assert np.array_equal(predict(site, tmp_path / "other.npz").values, expected)
        nameless = predict(site, replace(other, feature_names=None)).values  # nobody could know
        assert not np.allclose(nameless, expected)
    write_npz(shuffled(own, 5), tmp_path / "graph.npz")  # the site's own file has changed
    assert np.array_equal(predict(site).values, expected)


def test_tables_with_columns_in_another_order(tmp_path: Path) -> None:
    path, *_ = make_site(tmp_path)
    own = load_site_graph(read_site(path))
    new = tmp_path / "new"
    new.mkdir()
    (new / "edges.csv").write_text("\n".join(["source,target", *(f"{u},{v}" for u, v in own.edges.T)]))

    def write(columns: list[int], *more: str) -> None:
        rows = [",".join([str(n), *(repr(float(row[c])) for c in columns), *more]) for n, row in enumerate(own.x)]
        heading = ",".join(["id", *(f"f{c}" for c in columns), *(f"g{n}" for n in range(len(more)))])
        (new / "nodes.csv").write_text("\n".join([heading, *rows]) + "\n")

    write(list(range(10))[::-1])
    assert np.array_equal(predict(read_site(path), new).values, predict(read_site(path)).values)
    for columns, more, says in (
        ([0, 1, 2, 4, 5, 6, 7, 8, 9], ("0",), "new has no feature 'f3', which the model was trained on"),
        ([9, 8, 7, 6], (), "new has no feature 'f0', which the model was trained on"),
        (list(range(10)), ("0",), "new has a feature 'g0', which the model was not trained on; leave it out"),
    ):
        write(columns, *more)
        with pytest.raises(FedquiltError, match=says):
            predict(read_site(path), new)


def test_a_class_that_the_model_does_not_know_is_a_warning(tmp_path: Path) -> None:
    path, *_ = make_site(tmp_path)
    site = read_site(path)
    own, expected = load_site_graph(site), predict(site)
    assert expected.warnings == ()
    further = replace(own, classes=4, class_names=(*(own.class_names or ()), "grey"))
    among = replace(own, class_names=("blue", "grey", "red"))
    numbered = replace(own, classes=4, class_names=None)
    for given, called in ((further, "'grey'"), (among, "'grey'"), (numbered, "3")):
        found = predict(site, given)
        assert np.array_equal(found.values, expected.values)
        assert found.names == ("blue", "green", "red")
        assert found.warnings == (
            f"{own.name} has the class {called}, which the model was not trained on and never predicts; "
            "it knows: blue, green, red.",
        )


def test_what_does_not_fit_is_one_sentence(tmp_path: Path) -> None:
    path, _, client, _ = make_site(tmp_path)
    site, graph = read_site(path), client.graph

    def refused(says: str, given: Any) -> None:
        with pytest.raises(FedquiltError, match=says):
            predict(site, given)

    refused("has 9 features and the model was trained on 10", replace(graph, x=graph.x[:, 1:]))
    refused("There is no file or folder", tmp_path / "nothing.npz")
    refused("There is no file or folder", "cora")  # a path, not a dataset
    predict(
        site, replace(graph, classes=3, class_names=("red", "green", "blue"))
    )  # the order in a file does not matter


def test_a_site_without_a_model_says_how_to_get_one(tmp_path: Path) -> None:
    _, clients, _ = trained("majority")
    path = write_site(tmp_path, as_file(clients[0]))
    with pytest.raises(FedquiltError, match=r"has no model in .*; it gets one by taking part in a federation"):
        predict(read_site(path))


def test_a_damaged_model_is_said_to_be(tmp_path: Path) -> None:
    path, *_ = make_site(tmp_path)
    for file in (tmp_path / "state" / "run-1" / "model").glob("*.safetensors"):
        file.write_bytes(b"torn")
    with pytest.raises(FedquiltError, match=r"The model of site 'st-anna' in .* is damaged; put a copy back"):
        predict(read_site(path))


def test_an_earlier_version_in_place_of_a_damaged_one_is_a_warning(tmp_path: Path) -> None:
    path, method, client, models = make_site(tmp_path)
    state = SiteState(tmp_path / "state" / "run-1")
    own = {name: 2 * tensor[0] for name, tensor in models.items()}
    before = predict(read_site(path))
    assert before.warnings == ()
    state.save_model(own, model_facts(method, client) | {"finished": True})
    newest = max((tmp_path / "state" / "run-1" / "model").glob("*.safetensors"))
    newest.write_bytes(b"")
    found = predict(read_site(path))
    assert np.array_equal(found.values, before.values)
    assert f"{newest.name} is not the file" in found.warnings[0]
    assert found.warnings[0].endswith("An earlier version of the model is used.")


def test_the_state_of_another_user_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, *_ = make_site(tmp_path)

    def forbidden(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", forbidden)
    with pytest.raises(FedquiltError) as error:
        predict(read_site(path))
    assert str(error.value) == (
        f"{tmp_path}/state cannot be read by this user (Permission denied); run this as the user who runs the site."
    )


def test_the_run_that_was_finished_last_counts(tmp_path: Path) -> None:
    path, method, client, models = make_site(tmp_path)
    site = read_site(path)
    own = {name: tensor[0] for name, tensor in models.items()}

    def save(run: str, value: float, finished: bool, age: int) -> None:
        state = SiteState(tmp_path / "state" / run)
        weights = {name: value * tensor for name, tensor in own.items()}
        state.save_model(weights, model_facts(method, client) | {"finished": finished})
        for file in (tmp_path / "state" / run / "model").iterdir():
            os.utime(file, (2e9 - age, 2e9 - age))

    before = predict(site).values
    save("run-2", 0.0, finished=False, age=0)  # still training
    assert np.array_equal(predict(site).values, before)
    save("run-3", 0.0, finished=True, age=9)
    assert np.allclose(predict(site).values, 1 / 3)
    save("run-0", 2.0, finished=True, age=5)
    assert not np.allclose(predict(site).values, 1 / 3, atol=0.01)


def test_what_the_facts_lack_comes_from_the_sites_graph(tmp_path: Path) -> None:
    """Facts with no more than the method, its settings, its task and the client's number are enough."""
    path, method, client, models = make_site(tmp_path, "fedssa")
    own = {name: tensor[0] for name, tensor in models.items()}
    facts = model_facts(method, client)
    few = {name: facts[name] for name in ("method", "settings", "task", "client")}
    SiteState(tmp_path / "state" / "run-1").save_model(own, few)
    later = grown(client)
    predictions = predict(read_site(path), later.graph)
    assert_near(torch.from_numpy(predictions.values), probabilities(method, later, models))
    assert predictions.names == ("blue", "green", "red")
    site = read_site(path)
    assert np.array_equal(predict(site, shuffled(load_site_graph(site), 1)).values, predict(site).values)
    SiteState(tmp_path / "state" / "run-1").save_model(own, {"method": "fedssa"})
    with pytest.raises(FedquiltError, match="was saved without what is needed"):
        predict(read_site(path))


def test_a_method_of_ones_own_predicts_as_it_evaluates(tmp_path: Path) -> None:
    class Doubled(FedAvg):
        title, paper = "Doubled", "this test"

        def logits(self, personal: Any, cohort: Any) -> torch.Tensor:
            return 2 * super().logits(personal, cohort)

    with registered(Doubled, "doubled"):
        path, method, client, models = make_site(tmp_path, "doubled")
        for now in (client, grown(client)):
            predictions = predict(read_site(path), now.graph)
            assert_near(torch.from_numpy(predictions.values), probabilities(method, now, models))


def test_a_model_that_diverged_is_not_an_answer(tmp_path: Path) -> None:
    path, method, client, models = make_site(tmp_path)
    broken = {name: torch.full_like(tensor[0], torch.nan) for name, tensor in models.items()}
    SiteState(tmp_path / "state" / "run-1").save_model(broken, model_facts(method, client))
    with pytest.raises(FedquiltError, match="gives no finite numbers"):
        predict(read_site(path))


def test_a_graph_of_one_node(tmp_path: Path) -> None:
    for name in ("fedavg", "fedssa", "fedhero", "fediih", "quilt"):
        folder = tmp_path / name
        folder.mkdir()
        path, _, client, _ = make_site(folder, name)
        one = Graph("one", np.zeros((2, 0), dtype=np.int64), client.graph.x[:1], np.array([-1]), 0)
        assert np.isfinite(predict(read_site(path), one).values).all()
