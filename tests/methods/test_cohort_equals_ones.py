"""The simulation equals the deployment: a cohort of M clients trains as M cohorts of one do, whatever the method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from federations import make_method, make_task, make_training, ragged_clients
from fedquilt.methods import methods
from fedquilt.nn import optim
from fedquilt.training import Plan, Training

ROUNDS = 4
# Attention's gradients are sums of terms that cancel, which Adam divides by their own size: rounding becomes a step (PyG's
# own layer in single precision is as far from double precision). A larger epsilon takes that out for the GAT variant.
CALM = 1e-4
FEDPUB: list[dict[str, Any]] = [
    *({"similarity": kind} for kind in ("parameter", "gradient", "label")),
    *({"graph": kind} for kind in ("er", "one", "feature")),
    {"communities": "explicit"},
    {"masking": False},
    {"matching": False},
    {"threshold": 0.5},
    {"threshold": 0.5, "matching": False, "l1": 0.1, "proximal": 0.1},
    {"similarity": "parameter", "model": "sage"},
    {"graph": "feature", "model": "gat"},
]


def train(
    name: str, settings: dict[str, Any], sparse: bool, participation: float, cohort_size: int | None, epochs: int
) -> Training:
    clients = ragged_clients(sparse=sparse)
    method = make_method(name, clients, make_task(clients, epochs=epochs), **settings)
    training = make_training(method, clients, Plan(ROUNDS, participation), cohort_size)
    training.run()
    return training


def assert_alike(one: Training, two: Training) -> None:
    assert len(one.records) == len(two.records) == one.rounds
    for mine, other in zip(one.records, two.records, strict=True):
        for key in ("val", "test", "train_loss", "val_loss"):
            assert mine[key] == pytest.approx(other[key], rel=1e-5, abs=1e-5), (mine["round"], key)
        for part in ("val", "test"):
            assert mine["clients"][part] == pytest.approx(other["clients"][part], abs=1e-5)
        for key in ("participants", "bytes_up", "bytes_down"):
            assert mine[key] == other[key]
    ours, theirs = one.engine.personal(), two.engine.personal()
    assert list(ours) == list(theirs)
    for name in ours:
        assert float((ours[name] - theirs[name]).abs().max()) <= 1e-5, name


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("name", methods())
def test_a_cohort_trains_as_its_clients_alone(name: str, epochs: int, sparse: bool, participation: float) -> None:
    whole = train(name, {}, sparse, participation, None, epochs)
    for size in (1, 3):
        assert_alike(train(name, {}, sparse, participation, size, epochs), whole)


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("settings", FEDPUB, ids=lambda s: ",".join(f"{k}={v}" for k, v in s.items()))
def test_fedpub_in_all_its_variants(
    settings: dict[str, Any], participation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.get("model") == "gat":
        monkeypatch.setattr(optim, "EPSILON", CALM)
    whole = train("fedpub", settings, False, participation, None, 2)
    for size in (1, 3):
        assert_alike(train("fedpub", settings, False, participation, size, 2), whole)


@pytest.mark.parametrize("name", [n for n in methods() if n != "majority"])
def test_clients_learn_and_use_dropout(name: str) -> None:
    """Guards the tests above: training does something, and dropout is part of it."""
    trained = train(name, {}, False, 1.0, None, 2)
    start = make_method(name, trained.engine.parts[0].cohort.members).start(trained.engine.parts[0].cohort)
    moved = [float((w - start[f"model.{n}"]).abs().max()) for n, w in trained.engine.personal().items()]
    assert min(moved) > 1e-3
    plain = train(name, {"dropout": 0.0}, False, 1.0, None, 2)
    assert not torch.equal(plain.engine.personal()["conv1.weight"], trained.engine.personal()["conv1.weight"])
    losses = [record["train_loss"] for record in plain.records]
    assert np.diff(losses).max() < 0
