"""The option class_weights: how it can be given, that every method obeys it, and what it does to a rare class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.methods.base import methods
from fedquilt.runs.class_weights import resolved_class_weights
from fedquilt.runs.config import RunConfig
from fedquilt.runs.finished import Run
from support.clients import random_edges
from support.federations import small_settings
from support.small_runs import SMALL, own_graph


def rare(share: float = 0.08) -> Graph:
    """Two classes that one feature tells apart only roughly; the second is rare."""
    rng = np.random.default_rng(3)
    y = (rng.random(400) < share).astype(np.int64)
    x = (rng.standard_normal((400, 2)) + 1.5 * y[:, None]).astype(np.float32)
    return Graph("rare", random_edges(rng, 400, 0.002), x, y, 2, class_names=("well", "ill"))


def trained(name: str, graph: Graph, **options: Any) -> Run:
    return fedquilt.run(
        name, graph, **{**SMALL, "settings": small_settings(name), "rounds": 2, "partition": "random", **options}
    )


@pytest.mark.parametrize("name", [name for name in methods() if name != "majority"])
def test_every_method_that_trains_obeys_them(name: str) -> None:
    graph = own_graph()
    plain, same, other = (
        trained(name, graph, class_weights=asked, metric="accuracy")  # so that the same round is the best
        for asked in ("none", "1,1,1", "balanced")
    )
    for key, weights in plain.models[0].items():
        assert torch.allclose(weights, same.models[0][key], atol=1e-3), key  # one weight for all is no weight
    assert any(not torch.equal(plain.models[0][key], weights) for key, weights in other.models[0].items())
    assert other.facts[0]["task"]["class_weights"] == "balanced"
    assert "class_weights" not in plain.facts[0]["task"]


def test_a_rare_class_is_found_with_weights() -> None:
    recalls = {}
    for asked in ("none", "balanced", "ill=12"):
        run = trained(
            "fedavg", rare(), class_weights=asked, rounds=15, metric="balanced-accuracy", settings={"lr": 0.05}
        )
        frame = run.predict().to_frame()
        test = frame[(frame.part == "test") & (frame.label == "ill")]
        recalls[asked] = (test["class"] == "ill").mean()
    assert min(recalls["balanced"], recalls["ill=12"]) > recalls["none"] + 0.3


def test_with_weights_the_round_is_chosen_by_balanced_accuracy() -> None:
    """By accuracy it would be one that predicts the common class; a metric that is asked for stays."""
    assert trained("local", rare(), class_weights="balanced").result["metric"] == "balanced-accuracy"
    assert trained("local", rare(), class_weights="balanced", metric="accuracy").result["metric"] == "accuracy"
    assert trained("local", rare()).result["metric"] == "accuracy"


def test_they_are_named_numbered_or_in_a_file(tmp_path: Path) -> None:
    graph = rare()
    (tmp_path / "weights.yaml").write_text("ill: 5\n")
    (tmp_path / "odd.yaml").write_text("ill: many\n")
    for asked, found in {
        "none": "none",
        "balanced": "balanced",
        "1,5": "1,5",
        "ill=5": "1,5",
        "ill = 2.5, well=1": "1,2.5",
        str(tmp_path / "weights.yaml"): "1,5",
    }.items():
        assert resolved_class_weights(asked, graph) == found
    for asked, words in {
        "il=5": "There is no class 'il'",
        "1,2,3": "3 class weights for 2 classes",
        "ill=5,1": "has no '='",
        "ill=often": "is no number",
        str(tmp_path / "odd.yaml"): "is no number",
        str(tmp_path / "none.yaml"): "cannot be read",
    }.items():
        with pytest.raises(FedquiltError, match=words):
            resolved_class_weights(asked, graph)
    assert resolved_class_weights("1=4", own_graph()) == "1,4,1"
    assert RunConfig.build({"class_weights": [1, 2.5]}).class_weights == "1,2.5"
    assert RunConfig.build({"class_weights": {"ill": 5}}).class_weights == "ill=5"


def test_a_run_keeps_the_numbers_and_a_wrong_name_stops_it(tmp_path: Path) -> None:
    trained("local", rare(), class_weights="ill=3", out=tmp_path / "run")
    assert fedquilt.resume(tmp_path / "run").facts[0]["task"]["class_weights"] == "1,3"
    with pytest.raises(FedquiltError, match="There is no class 'sick'"):
        trained("local", rare(), class_weights="sick=3")
