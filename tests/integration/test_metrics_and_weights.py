"""Every metric chooses its round in its own direction, in this process and over Flower; class weights cross as a word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import fedquilt
from fedquilt.tasks.node_classification import METRICS
from fedquilt.training.plan import Plan
from support.federations import make_method, make_task, make_training, ragged_clients
from support.flower_doubles import federation
from support.small_runs import SMALL, own_graph

SIZES = (25, 14, 31)


@pytest.mark.parametrize("name", METRICS)
def test_the_best_round_is_the_best_by_the_metric_asked_for(name: str, tmp_path: Path) -> None:
    options = {**SMALL, "rounds": 8, "settings": {"hidden": 8, "lr": 0.2}}
    run = fedquilt.run("fedavg", own_graph(), metric=name, out=tmp_path / "run", **options)
    choose = max if METRICS[name].higher_is_better else min
    vals = [record["val"] for record in run.records[0]]
    seed = run.result["seeds"][0]
    assert seed["best_round"] == vals.index(choose(vals))
    assert len(set(vals)) > 1
    assert seed["test"] == run.records[0][seed["best_round"]]["test"]
    assert run.result["figures"][name]["test_mean"] == pytest.approx(seed["test"], abs=1e-4)
    assert fedquilt.load_run(tmp_path / "run").result == run.result


@pytest.mark.parametrize(("metric", "weights"), [("macro-f1", "balanced"), ("log-loss", "1,1,4")])
def test_sites_train_and_choose_as_clients_in_process(metric: str, weights: str, tmp_path: Path) -> None:
    clients = ragged_clients(SIZES)
    context = replace(make_task(clients), metric=metric, class_weights=weights)
    here = make_training(make_method("fedavg", clients, context), clients, Plan(4))
    here.run()
    options = {"metric": metric, "class-weights": weights}
    there = federation(tmp_path, ragged_clients(SIZES), method="fedavg", rounds=4, **options)
    there.run()
    assert there.incidents.all == []
    for mine, other in zip(there.folder.seed(3).records(), here.records, strict=True):
        assert [mine[key] for key in ("val", "test", "train_loss")] == pytest.approx(
            [other[key] for key in ("val", "test", "train_loss")], rel=1e-4, abs=1e-4
        )
    result = there.folder.result
    assert result["seeds"][0]["best_round"] == here.progress.best.round
    assert "figures" not in result  # what a site sends is the metric that was asked for, and nothing more
    assert "confusion" not in (there.folder.seed(3).summary or {})
