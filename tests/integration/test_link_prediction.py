"""Link prediction with every method that can learn it: what holds for node classification holds here, and nothing leaks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

import fedquilt
from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.export import module_of
from fedquilt.federation.site.config import load_site_graph, read_site
from fedquilt.federation.site.predict import personal_of, predict
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.node_pairs import draw_pairs, number_pairs
from fedquilt.methods.base import methods
from fedquilt.methods.base_votes import AVERAGE_VOTES, MASK_SHARE, VOTE_POINTS, VOTES
from fedquilt.nn import optim
from fedquilt.nn.filters import FILTER
from fedquilt.nn.views import MIXTURE, mixture_weights
from fedquilt.reports.page.build import page_html
from fedquilt.reports.page.run_pages import page_of_folder
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.studies.cells import expand
from fedquilt.studies.run_cell import DONE, run_cell
from fedquilt.studies.spec import find_study
from fedquilt.studies.store import CellStore
from fedquilt.tasks.base import find_task
from fedquilt.tasks.link_split import JOINED, negatives, seen_client
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import (
    assert_same,
    make_method,
    make_task,
    make_training,
    ragged_clients,
    tapped_run,
    without_seconds,
)
from support.flower_doubles import federation, site_models
from support.small_runs import StopAfter
from support.tiny_studies import write_study

SETTINGS = {"width": 6}
VOTED = {VOTES, AVERAGE_VOTES, MIXTURE, MASK_SHARE}
REFUSED = {n for n, kind in methods().items() if kind.pools_graphs or make_method(n, ragged_clients()).needs_classes()}
ABLE = [name for name in methods() if name not in REFUSED]
# What differs most in the computation; the others run in `make test-long`.
QUICK = {"fedavg", "fedgnn", "fedhero", "fediih", "fedpub", "fedsageplus", "fedsheafhn", "fedstar", "quilt"}
every_able_method = pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in ABLE]
)
TINY = {"dataset": "communities-3", "clients": 3, "rounds": 3, "settings": {"hidden": 8}, "task": "link"}


def split_clients(sizes: tuple[int, ...] = (30, 18, 25), **settings: Any) -> list[Client]:
    task = find_task("link", SETTINGS | settings)
    return [task.client(c.id, c.graph, c.split, 3) for c in ragged_clients(sizes)]


def link_method(name: str, clients: list[Client], **task_settings: Any) -> Any:
    own = SETTINGS | task_settings
    return make_method(name, clients, make_task(clients, task="link", metric="auc", outputs=6, task_settings=own))


def trained(name: str, clients: list[Client], cohort_size: int | None = None, participation: float = 1.0) -> Training:
    training = make_training(link_method(name, clients), clients, Plan(3, participation), cohort_size)
    training.run()
    return training


# -- every method


@every_able_method
def test_a_cohort_trains_as_its_clients_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optim, "EPSILON", 1e-4)  # as in test_methods_cohort_equals_ones.py
    whole, alone = (trained(name, split_clients(), size, participation=0.7) for size in (None, 1))
    for mine, other in zip(whole.records, alone.records, strict=True):
        for key in ("val", "test", "train_loss", "val_loss"):
            assert (key in mine) == (key in other)  # a phase before training is not evaluated
            assert mine.get(key, 0.0) == pytest.approx(other.get(key, 0.0), rel=1e-4, abs=1e-4, nan_ok=True)
    ours, theirs = whole.engine.personal(), alone.engine.personal()
    for weight in ours:
        assert float((ours[weight] - theirs[weight]).abs().max()) <= 1e-4, weight


def hidden_otherwise(client: Client, seed: int) -> Client:
    """The client with other validation and test edges, which are no negatives of training in either case."""
    held, rng = dict(client.held_out), np.random.default_rng(seed)
    for part in ("val", "test"):
        other = draw_pairs(client.graph.nodes, held[JOINED], held[part].shape[1], rng)
        held[part] = other if seed else held[part]
        held[negatives(part)] = held[negatives(part)][:, ::-1].copy()
    return replace(client, held_out=held)


def not_voted(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """What does not come from votes on views, which are of validation edges by their meaning."""
    return {name: value for name, value in tensors.items() if name not in VOTED}


def with_known(client: Client, others: list[Client]) -> Client:
    """The client with all edges of `others` among those that are never negatives."""
    pairs = [number_pairs(np.concatenate([o.held_out["val"], o.held_out["test"]], axis=1)) for o in others]
    return replace(
        client, held_out={**client.held_out, JOINED: np.unique(np.concatenate([client.held_out[JOINED], *pairs]))}
    )


@every_able_method
def test_edges_that_are_held_out_change_nothing_in_training(name: str) -> None:
    """Other validation and test edges: no upload, no state and no training loss differs."""
    runs = []
    given = split_clients()
    variants = [[hidden_otherwise(client, seed) for client in given] for seed in (0, 1)]
    for clients in variants:
        known = [with_known(c, [one[c.id] for one in variants]) for c in clients]
        runs.append(tapped_run(link_method(name, known), known, rounds=3, participation=1.0))
    (one, tap), (two, other) = runs
    for mine, theirs in zip(tap.ups, other.ups, strict=True):
        assert_same(not_voted(mine), not_voted(theirs))
    states = [{k: v for k, v in run.engine.state().items() if not k.startswith("figures.")} for run in (one, two)]
    assert_same(*map(not_voted, states))
    assert [r.get("train_loss") for r in one.records] == [r.get("train_loss") for r in two.records]
    assert [r.get("test") for r in one.records] != [r.get("test") for r in two.records]  # they were others


def test_quilt_weighs_its_views_by_held_out_edges() -> None:
    """Votes are of the AUC of each view as it was received, and a client's own count by how many validation edges it has."""
    clients = split_clients((60, 18, 45))
    cohort, method = Cohort(clients), link_method("quilt", clients)
    _, tap = tapped_run(method, clients, 4, 1.0)
    state, received = method.start(cohort), tap.downs[-1]
    model = {n.removeprefix("model."): torch.stack([w] * 3) for n, w in received.items() if n.startswith("model.view.")}
    upload, seen = method.local_update(state, cohort, received, 3).upload, method.task.seen(cohort, "val")
    model |= {FILTER: state[FILTER]}  # which is the client's own, as are the scale of its features and its private view
    model |= {name: model[name] * method.scales(cohort).view(-1, 1, 1) for name in method.readers if name in model}
    model |= {name.removeprefix("model."): w for name, w in state.items() if name.startswith("model.view.private.")}
    for m in range(len(clients)):
        points = []
        for view in method.names:
            mine = method.model.weights_of(view, model)
            z = seen.parts_of(method.model.networks[view](seen, mine).logits)[m].double().numpy()
            z /= np.linalg.norm(z, axis=1, keepdims=True)
            edges, others = (clients[m].held_out[name] for name in ("val", negatives("val")))
            truth = np.repeat([1, 0], [edges.shape[1], others.shape[1]])
            pairs = np.concatenate([edges, others], axis=1)
            points.append(100 * roc_auc_score(truth, (z[pairs[0]] * z[pairs[1]]).sum(1)))
        expected = np.clip(1 - (np.max(points) - np.array(points)) / VOTE_POINTS, 0, 1)
        np.testing.assert_allclose(upload[VOTES][m, :6], expected, atol=1e-4)
    edges = torch.tensor([client.held_out["val"].shape[1] for client in clients])
    trust, scale = edges / (edges + method.settings.own_votes), method.settings.sharpness * VOTE_POINTS
    assert_near(state[MIXTURE], mixture_weights(state[VOTES][:, :6], state[AVERAGE_VOTES][:, :6], trust, scale), 1e-6)


def test_those_that_read_classes_say_so() -> None:
    assert {"adafgl", "centralised", "fedgta", "fedproto", "fedssa", "fedtad", "majority"} <= REFUSED
    assert not {"fedavg", "fedpub", "fediih", "fedhero", "fedsheafhn", "quilt", "gcfl", "fedstar"} & REFUSED


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_the_other_methods_refuse_with_a_sentence_before_training(name: str) -> None:
    why = "everyone's graph in one place" if name == "centralised" else "needs classes, which the task link has not"
    with pytest.raises(FedquiltError, match=why):
        fedquilt.run(name, **TINY | {"settings": {}})


# -- leakage


def random_graph(nodes: int = 160, degree: int = 5) -> Graph:
    """Edges and features at random: nothing says which pairs are joined."""
    rng = np.random.default_rng(0)
    edges = draw_pairs(nodes, np.zeros(0, np.int64), nodes * degree // 2, rng)
    x = rng.standard_normal((nodes, 32)).astype(np.float32)
    return Graph("random", edges, x, np.zeros(nodes, np.int64), 1)


def test_a_planted_edge_is_seen_and_there_is_none_otherwise() -> None:
    """Messages over test edges: the test jumps. Without them a random graph cannot be told from any other."""
    task = find_task("link", {"width": 16})
    honest = task.client(0, random_graph(), np.zeros(160), 0)
    planted = replace(honest, graph=seen_client(honest, None).graph)
    assert set(map(tuple, honest.held_out["test"].T)) <= set(map(tuple, planted.graph.edges.T))
    assert not set(map(tuple, honest.held_out["test"].T)) & set(map(tuple, honest.graph.edges.T))
    results = []
    for client in (honest, planted):
        context = make_task([client], task="link", metric="auc", outputs=16, task_settings={"width": 16})
        method = make_method("local", [client], context, hidden=32, dropout=0.0)
        training = make_training(method, [client], Plan(25))
        training.run()
        results.append(training.records[-1]["test"])
    assert results[0] < 62  # of 160 test pairs: chance is 50, give or take 5
    assert results[1] > 75


def test_nothing_that_a_model_reads_has_a_held_out_edge() -> None:
    task = find_task("link", SETTINGS)
    (client,) = split_clients((30,))
    cohort = Cohort([client])
    for part, hidden in (("train", ("train", "val", "test")), ("val", ("val", "test")), ("test", ("test",))):
        seen = task.seen(cohort, part)
        dense = torch.zeros(seen.rows, seen.rows)
        dense[tuple(seen.edges)] = 1.0
        for operator in (dense, seen.gcn @ torch.eye(seen.rows), seen.mean @ torch.eye(seen.rows)):
            for name in hidden:
                u, v = client.held_out[name]
                assert not operator[u, v].any()
                assert not operator[v, u].any()  # in neither direction


# -- runs


def test_a_run_is_resumed_again_from_its_config_and_ranked_by_its_metrics(tmp_path: Path) -> None:
    run = fedquilt.run("fedpub", **TINY, out=tmp_path / "run", checkpoint_seconds=0, task_settings={"decoder": "mlp"})
    assert run.result["metric"] == "auc"
    assert set(run.result["seeds"][0]["figures"]) == {"auc", "average-precision", "hits@10", "hits@20", "hits@50"}
    (seed,) = run.result["seeds"]
    records = run.records[0]
    assert seed["val"] == max(record["val"] for record in records)  # the best validation round
    assert seed["test"] == records[seed["best_round"]]["test"]
    assert fedquilt.resume(tmp_path / "run").result == run.result
    resolved = ResolvedRun(RunConfig.build({"method": "fedpub", **TINY, "task_settings": {"decoder": "mlp"}}))
    again = fedquilt.run(**resolved.config.model_dump())
    assert again.result["test_mean"] == run.result["test_mean"]


def test_another_metric_chooses_the_best_round() -> None:
    run = fedquilt.run("local", **TINY, metric="hits@10")
    assert run.result["metric"] == "hits@10"
    assert run.result["seeds"][0]["val"] == max(record["val"] for record in run.records[0])


def test_a_stopped_run_goes_on_as_if_it_had_not_been_stopped(tmp_path: Path) -> None:
    whole = fedquilt.run("quilt", **TINY)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run(
            "quilt", **TINY, out=tmp_path / "run", checkpoint_seconds=0, watch=StopAfter(0, 1, KeyboardInterrupt)
        )
    resumed = fedquilt.resume(tmp_path / "run")
    assert without_seconds(resumed.records[0]) == without_seconds(whole.records[0])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"edge_noise": 0.1},
            "Leave out edge_noise for the task link: a moved edge could be one that is to be predicted",
        ),
        ({"min_train": 3}, "Leave out min_train for the task link: all nodes train"),
        ({"keep_copies": "features"}, "Leave out keep_copies for the task link: it is edges that are split"),
        ({"class_weights": "balanced"}, "The task link has no classes to weight"),
        ({"metric": "accuracy"}, "There is no metric 'accuracy'; choose one of: auc, average-precision, hits@10"),
        ({"task_settings": {"decoder": "distance"}}, "The setting decoder='distance' of the task link"),
        ({"split": "given"}, "edges are split by three percentages that sum to 100"),
    ],
)
def test_what_has_no_meaning_here_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(FedquiltError, match=why):
        fedquilt.run("fedavg", **TINY | options)


def test_a_graph_needs_no_labels() -> None:
    unlabelled = replace(random_graph(60), y=np.full(60, -1), classes=0)
    run = fedquilt.run("fedavg", unlabelled, task="link", clients=2, rounds=1, settings={"hidden": 8})
    assert run.result["test_mean"] is not None
    with pytest.raises(FedquiltError, match="label"):
        fedquilt.run("fedavg", unlabelled, clients=2, rounds=1)


@pytest.mark.long
def test_a_search_sees_validation_edges_only(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    from fedquilt.tuning import tune

    options = {k: v for k, v in TINY.items() if k != "dataset"}
    tuned = tune("fedavg", TINY["dataset"], **options, trials=2, space={"lr": [1e-3, 0.01]}, into=tmp_path / "search")
    assert tuned.best_val == max(trial.val for trial in tuned.trials if trial.val is not None)


@pytest.mark.long
def test_a_comparison_leaves_out_methods_that_need_classes(tmp_path: Path) -> None:
    compared = fedquilt.compare(["local", "fedavg", "fedproto"], **TINY, out=tmp_path / "both")
    assert [run.result["metric"] for run in compared] == ["auc", "auc"]


def test_the_cells_of_a_study_know_the_task(tmp_path: Path) -> None:
    study = {
        "options": {k: v for k, v in TINY.items() if k != "clients"},
        "seeds": 1,
        "values": {"test": "ROC AUC (%)"},
    }
    cells, missing = expand(find_study(write_study(tmp_path, **study)))
    assert not missing
    assert {(cell.config.task, cell.config.clients) for cell in cells} == {("link", 2), ("link", 3)}
    store = CellStore(tmp_path / "cells")
    assert run_cell(cells[0], store) == DONE
    assert store.get(cells[0]) is not None


def test_the_page_of_a_run_knows_the_task(tmp_path: Path) -> None:
    fedquilt.run("fedavg", **TINY, out=tmp_path / "run")
    assert "Hits@20" in page_html(page_of_folder(tmp_path / "run"))


def test_an_exported_model_gives_embeddings() -> None:
    run = fedquilt.run("fedavg", **TINY, task_settings={"width": 12})
    graph = ResolvedRun(RunConfig.build({"method": "fedavg", **TINY})).graph
    data = graph.to_data()
    assert module_of(run, client=0)(data).shape == (graph.nodes, 12)


# -- sites


@pytest.mark.parametrize(
    ("name", "decoder"),
    [
        ("fedavg", "dot"),
        ("quilt", "mlp"),
        *(pytest.param(name, "dot", marks=pytest.mark.long) for name in ABLE if name != "fedavg"),
    ],
)
def test_sites_train_as_clients_in_process_and_predict_for_pairs(name: str, decoder: str, tmp_path: Path) -> None:
    own = SETTINGS | {"decoder": decoder}
    there = federation(
        tmp_path, ragged_clients((30, 18, 25)), method=name, task="link", metric="auc", task_settings=own
    )
    there.run()
    assert there.incidents.all == []
    clients = split_clients(decoder=decoder)
    here = make_training(link_method(name, clients, decoder=decoder), clients, Plan(3))
    here.run()
    for mine, other in zip(there.folder.seed(3).records(), here.records, strict=True):
        for key in ("val", "test", "train_loss", "val_loss"):
            assert mine.get(key, 0.0) == pytest.approx(other.get(key, 0.0), rel=1e-5, abs=1e-5), key
    for m, (tensors, _) in enumerate(site_models(tmp_path)):
        for weight, tensor in tensors.items():
            assert_near(tensor, here.progress.best.models[weight][m])
    site = read_site(tmp_path / "site-0" / "site.yaml")
    (tmp_path / "pairs.csv").write_text("source,target\n0,1\n2,7\n")
    found = predict(site, pairs=tmp_path / "pairs.csv")
    personal = personal_of(site)
    z = personal.logits(load_site_graph(site))
    expected = personal.method.task.pair_probabilities(z, torch.tensor([[0, 2], [1, 7]]))
    assert_near(torch.from_numpy(found.values[:, 0]), expected)
    with pytest.raises(FedquiltError, match="predicts pairs of nodes; say which"):
        predict(site)
    with pytest.raises(FedquiltError, match="There is no node '99'"):
        predict(site, pairs=[(0, 99)])


def test_a_federation_refuses_what_it_cannot_learn(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="Method 'fedssa' needs classes, which the task link has not"):
        federation(tmp_path, ragged_clients((30, 18)), method="fedssa", task="link", metric="auc").run()
