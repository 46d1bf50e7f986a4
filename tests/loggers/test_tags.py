from __future__ import annotations

from fedquilt.loggers.tags import best, clients_test, hyperparameters, scalars
from fedquilt.runs.config import RunConfig

RECORD = {
    "round": 2,
    "participants": "all",
    "bytes_up": {"model.conv1": 12, "train_nodes": 4},
    "bytes_down": {"model.conv1": 8},
    "val": 50.0,
    "test": None,
    "train_loss": 0.5,
    "val_loss": 0.25,
    "clients": {"val": [50.0, 50.0], "test": [None, 40.0]},
    "seconds": 0.125,
    "timings": {"train": 0.1},
}


def test_a_rounds_metrics_have_the_same_names_everywhere() -> None:
    assert scalars(RECORD) == {
        "val": 50.0,
        "loss/train": 0.5,
        "loss/val": 0.25,
        "bytes_up/model.conv1": 12.0,
        "bytes_up/train_nodes": 4.0,
        "bytes_down/model.conv1": 8.0,
        "timings/train": 0.1,
        "seconds": 0.125,
    }
    assert list(scalars(RECORD))[-1] == "seconds"  # whoever has them has all of the round
    assert clients_test(RECORD) == [40.0]


def test_a_round_without_evaluation_has_bytes_and_seconds_only() -> None:
    record = {"round": 0, "bytes_up": {"a": 1}, "bytes_down": {}, "seconds": 1.0}
    assert scalars(record) == {"bytes_up/a": 1.0, "seconds": 1.0}
    assert clients_test(record) == []
    assert scalars(record | {"phases": {"train": 0.5}})["timings/train"] == 0.5  # as they were called before


def test_what_a_seed_came_to() -> None:
    assert best({"val": 3.0, "test": 4.0, "best_round": 7}) == {"best/val": 3.0, "best/test": 4.0, "best/round": 7.0}
    assert best({"val": 3.0, "test": None, "best_round": 7}) == {"best/val": 3.0, "best/round": 7.0}


def test_hyperparameters_are_flat_and_plain() -> None:
    config = RunConfig(method="fedpub", sizes=[2, 1], seeds=[4, 5], settings={"lr": 0.1})
    named = hyperparameters(config.model_dump(), {"lr": 0.1, "masking": True, "layers": (1, 2), "head": None}, 5)
    assert named["method"] == "fedpub"
    assert named["seed"] == 5
    assert named["sizes"] == "[2, 1]"
    assert named["settings/lr"] == 0.1
    assert named["settings/masking"] is True
    assert named["settings/layers"] == "(1, 2)"
    assert not {"seeds", "settings", "settings/head", "rounds"} & set(named)
