"""What is read off a run, against a direct computation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from fedquilt.methods.settings import resolve_settings
from fedquilt.partition.neighbours import client_homophily, neighbour_distance, node_homophily
from fedquilt.partition.statistics import statistics
from fedquilt.runs.config import RunConfig
from fedquilt.runs.execute import execute_run
from fedquilt.runs.finished import Run
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.scenarios.link_inference import VIEWS, infer_links
from fedquilt.studies.measures import measure_at, measure_links, measure_partition, measure_run
from fedquilt.training.plan import BEST

BASE: dict[str, Any] = {"dataset": "communities-3", "rounds": 3, "epochs": 1, "seeds": [1], "device": "cpu"}


def trained(**options: Any) -> tuple[ResolvedRun, Run, dict[str, float | None]]:
    config = RunConfig.build(BASE | {"clients": 4, "settings": {"hidden": 8}} | options)
    run = execute_run(config, None)
    resolved = ResolvedRun(config)
    return resolved, run, measure_run(resolved, run)


@pytest.mark.parametrize(
    "options", [{"method": "fedpub"}, {"method": "fedavg", "participation": 0.5}, {"method": "local"}]
)
def test_bytes_and_entries_are_a_clients_and_a_rounds(options: dict[str, Any]) -> None:
    _, run, values = trained(**options)
    records, models = run.records[1], run.models[1]
    up = sum(sum(record["bytes_up"].values()) for record in records)
    down = sum(sum(record["bytes_down"].values()) for record in records)
    sent = sum(4 if record["participants"] == "all" else len(record["participants"]) for record in records)
    assert sent == (3 * 2 if "participation" in options else 3 * 4)
    entries = sum(np.prod(tensor.shape[1:]) for tensor in models.values())
    zero = sum(int((tensor.numpy() == 0).sum()) for tensor in models.values())
    assert values["upload_mb"] == pytest.approx(up / sent / 1e6)
    assert values["download_mb"] == pytest.approx(down / sent / 1e6)
    assert values["cost"] == pytest.approx(100 * (up + down) / (sent * entries * 4 * 2))
    assert values["model_size"] == pytest.approx(100 - 100 * zero / (4 * entries))
    assert values["sparsity"] == pytest.approx(100 * zero / (4 * entries))
    if options["method"] == "local":
        assert values["upload_mb"] == values["cost"] == 0


def test_scores_are_those_of_the_best_validation_round() -> None:
    _, run, values = trained(method="fedavg", rounds=6)
    best = max(run.records[1], key=lambda record: record["val"])
    assert (values["test"], values["val"], values["best_round"]) == (best["test"], best["val"], best["round"] + 1)
    assert values["seconds"] == pytest.approx(run.result["seeds"][0]["seconds_per_round"])
    assert values["label_correlation"] is None  # it compares no clients


def test_the_metric_after_some_rounds_is_read_off_the_records() -> None:
    _, run, _ = trained(method="fedavg", evaluate_every=2, rounds=5)
    records = run.records[1]
    for after in range(1, 6):
        assert measure_at(f"test@{after}", records) == records[after - 1].get("test")
    assert measure_at("test@4", records) is not None
    assert measure_at("test@6", records) is None
    assert measure_at("test", records) is None
    assert measure_at("test@four", records) is None


def test_diagnostics_are_read_at_the_best_round_and_at_any() -> None:
    resolved, run, _ = trained(method="fedavg")
    records = run.records[1]
    for record in records:
        record["diagnostics"] = {"effective_clients": float(record["round"])}
    best = run.result["seeds"][0]["best_round"]
    assert measure_run(resolved, run)["diagnostic.effective_clients"] == best
    assert measure_at("diagnostic.effective_clients@2", records) == 1.0
    assert measure_at("diagnostic.weight_norm@2", records) is None
    assert measure_at("val@2", records) == records[1]["val"]


def test_models_with_zeros_are_smaller() -> None:
    resolved, run, before = trained(method="local")
    run.models[1]["conv1.weight"][0] = 0
    after = measure_run(resolved, run)
    entries = sum(tensor[0].numel() for tensor in run.models[1].values())
    removed = 100 * run.models[1]["conv1.weight"][0].numel() / (4 * entries)
    assert before["model_size"] == pytest.approx(after["model_size"] + removed)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"method": "fedpub", "attack": "gaussian", "attack_ratio": 0.4}, ("honest", "malicious")),
        ({"method": "fedsheafhn", "hold_out_clients": 0.3}, ("trained", "new", "new without training", "new alone")),
    ],
)
def test_groups_of_clients_have_values_of_their_own(options: dict[str, Any], names: tuple[str, ...]) -> None:
    _, run, values = trained(**options, settings={})
    groups = run.result["seeds"][0]["groups"]
    assert {f"test.{name}": values[f"test.{name}"] for name in names} == {
        f"test.{name}": groups[name]["test"] for name in names
    }
    assert "test.honest" not in trained(method="local")[2]


def test_label_correlation_is_pearsons_over_pairs_of_clients() -> None:
    resolved, run, values = trained(method="fedpub", clients=5, rounds=4)
    partition, _ = resolved.cut(1)
    found = run.similarities[1][BEST]
    mine, theirs = [], []
    for a in range(5):
        for b in range(a + 1, 5):
            p, q = (np.bincount(resolved.graph.y[partition.nodes[m]], minlength=2) for m in (a, b))
            mine.append(found[a, b])
            theirs.append(1 - jensenshannon(p, q))
    assert values["label_correlation"] == pytest.approx(np.corrcoef(mine, theirs)[0, 1], abs=1e-4)
    run.similarities[1][BEST] = np.ones_like(found)
    assert measure_run(resolved, run)["label_correlation"] is None
    run.similarities[1][BEST] = np.stack([found, np.zeros_like(found)])  # a matrix for each latent factor
    assert measure_run(resolved, run)["label_correlation"] == pytest.approx(values["label_correlation"])
    run.similarities[1][BEST] = found[:4, :4]  # a client was held out
    assert measure_run(resolved, run)["label_correlation"] is None


@pytest.mark.parametrize(("kind", "clients"), [("disjoint", 3), ("overlapping", 10), ("disjoint", 1)])
def test_a_cut_is_described_by_its_statistics(kind: str, clients: int) -> None:
    resolved = ResolvedRun(RunConfig.build(BASE | {"method": "local", "partition": kind, "clients": clients}))
    partition, _ = resolved.cut(1)
    found, values = statistics(resolved.graph, partition), measure_partition(resolved, 1)
    u, v = resolved.graph.edges
    inside = np.zeros((clients, resolved.graph.nodes), dtype=bool)
    for m, nodes in enumerate(partition.nodes):
        inside[m, nodes] = True
    both = inside[:, u] & inside[:, v]
    assert values["nodes"] == pytest.approx(inside.sum(axis=1).mean())
    assert values["edges"] == pytest.approx(2 * both.sum(axis=1).mean())
    assert values["missing_edges"] == pytest.approx(100 * (~both.any(axis=0)).mean())
    assert values["classes"] == resolved.graph.classes
    assert values["clustering"] == pytest.approx(found.clustering.mean())
    parts = client_homophily(resolved.graph, partition)
    assert values["homophily"] == pytest.approx(parts[~np.isnan(parts)].mean())
    assert values["graph_homophily"] == pytest.approx(node_homophily(resolved.graph))
    if clients == 1:
        assert values["neighbour_distance"] is None
        assert values["homophily"] == values["graph_homophily"]
        assert values["heterogeneity"] is None
        assert values["missing_edges"] == 0
    else:
        assert values["neighbour_distance"] == pytest.approx(neighbour_distance(resolved.graph, partition))
        assert values["heterogeneity"] == pytest.approx(found.heterogeneity)
        assert not math.isnan(found.heterogeneity)


@pytest.mark.parametrize("method", ["fedavg", "fedhero"])
def test_links_are_inferred_from_the_best_models(method: str) -> None:
    resolved, run, _ = trained(method=method)
    context = resolved.context(1)
    settings = resolve_settings(resolved.method, context, resolved.config.settings, context.epochs)
    expected = infer_links(resolved.method(*settings), run.models[1], resolved.clients(1), 1)
    found = measure_links(resolved, run)
    assert set(found) == {f"links.{view}{kind}" for view in VIEWS for kind in ("", ".auc")}
    for view, guess in expected.items():
        assert (found[f"links.{view}"], found[f"links.{view}.auc"]) == (guess.accuracy, guess.auc)


def test_clients_of_a_natural_partition_by_their_leading_class() -> None:
    resolved, run, values = trained(method="local", partition="natural", clients=None)
    (best,) = [record for record in run.records[1] if record["round"] + 1 == values["best_round"]]
    tests = best["clients"]["test"]
    labels = [resolved.graph.y[nodes] for nodes in resolved.cut(1)[0].nodes]
    leading = [int(np.bincount(one).argmax()) for one in labels]
    for number in (0, 1):
        mine = [test for test, label in zip(tests, leading, strict=True) if label == number]
        assert values[f"test.class.{number}"] == pytest.approx(np.mean(mine))
    assert "test.class.0" not in trained(method="local")[2]


def test_entries_that_the_most_alike_and_the_most_unlike_clients_share() -> None:
    resolved, run, values = trained(method="fedpub", settings={"hidden": 8, "threshold": 0.9})
    models = {name: tensor.numpy() for name, tensor in run.models[1].items()}
    partition = resolved.cut(1)[0]
    counts = [np.bincount(resolved.graph.y[nodes], minlength=2) for nodes in partition.nodes]
    apart = {(i, j): jensenshannon(counts[i], counts[j], base=2) for i in range(4) for j in range(i + 1, 4)}
    for name, pair in (("alike", min(apart, key=lambda p: apart[p])), ("unlike", max(apart, key=lambda p: apart[p]))):
        one, other = (np.concatenate([tensor[m].ravel() != 0 for tensor in models.values()]) for m in pair)
        assert values[f"shared.{name}"] == pytest.approx(100 * (one & other).sum() / (one | other).sum())
    assert "shared.alike" not in trained(method="fedavg")[2]
