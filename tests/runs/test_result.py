from __future__ import annotations

import json
import math

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.runs.result import build_result, group

CONFIG = {
    "method": "fedpub",
    "dataset": "cora",
    "partition": "disjoint",
    "clients": 10,
    "rounds": 100,
    "metric": "accuracy",
    "lr": 0.01,
}


def summary(seed: int, test: float, val: float = 80.0) -> dict[str, object]:
    return {
        "seed": seed,
        "best_round": 40 + seed,
        "val": val,
        "test": test,
        "seconds": 12.0,
        "seconds_per_round": 0.12,
        "upload_bytes": 1000,
        "download_bytes": 2000,
        "note": "not for the result",
    }


def test_the_whole_of_it() -> None:
    result = build_result(CONFIG, [summary(0, 80.0, 70.0), summary(1, 82.0, 72.0), summary(2, 84.0, 74.0)])
    assert list(result) == [
        "method",
        "dataset",
        "partition",
        "clients",
        "rounds",
        "metric",
        "test_mean",
        "test_std",
        "val_mean",
        "seeds",
    ]
    assert result["test_mean"] == pytest.approx(82)
    assert result["test_std"] == pytest.approx(math.sqrt(8 / 3))
    assert result["val_mean"] == pytest.approx(72)
    assert result["seeds"][1] == {
        "seed": 1,
        "best_round": 41,
        "val": 72.0,
        "test": 82.0,
        "seconds": 12.0,
        "seconds_per_round": 0.12,
        "upload_bytes": 1000,
        "download_bytes": 2000,
    }
    json.dumps(result, allow_nan=False)


def test_one_seed_has_no_spread() -> None:
    assert build_result(CONFIG, [summary(0, 80.0)])["test_std"] == 0


def test_no_test_nodes() -> None:
    result = build_result(CONFIG, [summary(0, math.nan), summary(1, 80.0)])
    assert result["test_mean"] is None
    assert result["test_std"] is None
    assert result["val_mean"] == 80
    assert result["seeds"][0]["test"] is None


def test_the_dataset_may_have_chosen_the_metric() -> None:
    assert build_result({**CONFIG, "metric": "auto"}, [{**summary(0, 1.0), "metric": "roc_auc"}])["metric"] == "roc_auc"


def test_groups_of_clients() -> None:
    """Each seed's as it was, and means and deviations over seeds; an undefined figure is none of a group's mean."""
    assert group([80.0, None, 90.0]) == {"clients": 3, "test": 85.0}
    assert group([None]) == {"clients": 1, "test": None}
    seeds = [
        {"honest": group([80.0, 90.0]), "malicious": group([60.0])},
        {"honest": group([70.0, None]), "malicious": group([None])},
    ]
    result = build_result(CONFIG, [summary(s, 80.0) | {"groups": groups} for s, groups in enumerate(seeds)])
    assert list(result)[-2:] == ["seeds", "groups"]
    assert [line["groups"] for line in result["seeds"]] == seeds
    assert result["groups"] == {
        "honest": {"clients": 2, "test_mean": 77.5, "test_std": 7.5},
        "malicious": {"clients": 1, "test_mean": None, "test_std": None},
    }
    json.dumps(result, allow_nan=False)
    # A seed that is not done has none, and then the run has none yet.
    partly = build_result(CONFIG, [summary(0, 80.0) | {"groups": seeds[0]}, summary(1, 80.0)])
    assert "groups" not in partly
    assert ["groups" in line for line in partly["seeds"]] == [True, False]


def test_errors_name_what_is_missing() -> None:
    with pytest.raises(FedquiltError, match="at least one finished seed"):
        build_result(CONFIG, [])
    for key in ("clients", "metric"):
        with pytest.raises(FedquiltError, match=f"no '{key}'"):
            build_result({name: value for name, value in CONFIG.items() if name != key}, [summary(0, 1.0)])
    bad = summary(7, 1.0)
    del bad["seconds"]
    with pytest.raises(FedquiltError, match="seed 7 has no 'seconds'"):
        build_result(CONFIG, [bad])


def test_figures_are_there_where_every_seed_has_them() -> None:
    figures = [
        {"macro-f1": {"test": value, "clients": [value]}, "auc": {"test": None, "clients": [None]}}
        for value in (60, 70)
    ]
    seeds = [summary(place, 80.0) | {"figures": each} for place, each in enumerate(figures)]
    result = build_result(CONFIG, seeds)
    assert result["figures"] == {
        "macro-f1": {"test_mean": 65.0, "test_std": 5.0},
        "auc": {"test_mean": None, "test_std": None},
    }
    assert [seed["figures"]["macro-f1"] for seed in result["seeds"]] == [60, 70]
    assert "figures" not in build_result(CONFIG, [seeds[0], summary(1, 80.0)])
    assert "figures" not in build_result(CONFIG, [summary(0, 80.0) | {"figures": {}}])
