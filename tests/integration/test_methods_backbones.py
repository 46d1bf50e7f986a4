"""Every method that trains a backbone takes every one of them, or says in one sentence before training that it cannot."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.methods.base import Method, federated_methods, find_method
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.nn import optim
from fedquilt.nn.models import Model
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.federations import make_method, make_task, make_training, ragged_clients

ON_BACKBONES = [name for name, kind in federated_methods().items() if issubclass(kind, BackboneMethod)]
# With Adam's own epsilon, rounding becomes a step where a gradient nearly cancels: see test_methods_cohort_equals_ones.
CALM = 1e-4
SIZES, ROUNDS = (14, 9, 11), 2
# FedAvg with each backbone, every other method with one of them in turn; all the others by `make test-long`.
PAIRS = [
    pytest.param(name, kind, marks=[] if name == "fedavg" or (m - k) % len(Model.kinds) == 0 else [pytest.mark.long])
    for m, name in enumerate(ON_BACKBONES)
    for k, kind in enumerate(Model.kinds)
]


def made(name: str, kind: str, **settings: Any) -> Method | None:
    """The method on a backbone, None where it says in one sentence that it cannot have it. Its other phases are short."""
    clients = ragged_clients(SIZES)
    short = {field.name: ROUNDS for field in fields(find_method(name).Settings) if field.name.endswith("_rounds")}
    try:
        return make_method(name, clients, make_task(clients, rounds=ROUNDS), model=kind, **short, **settings)
    except FedquiltError as error:
        sentence = str(error)
        assert kind in sentence
        assert sentence.endswith(".")
        assert ". " not in sentence
        assert "\n" not in sentence
        return None


def trained(method: Method, cohort_size: int | None) -> Training:
    training = make_training(method, ragged_clients(SIZES), Plan(ROUNDS), cohort_size)
    training.run()
    return training


@pytest.mark.parametrize("kind", Model.kinds)
@pytest.mark.parametrize("name", ON_BACKBONES)
def test_a_method_trains_a_backbone(name: str, kind: str) -> None:
    method = made(name, kind)
    if method is None:
        assert make_method(name, ragged_clients(SIZES)).settings.model != kind
        return
    training = trained(method, None)
    assert len(training.records) == method.total_rounds(ROUNDS)
    for record in training.records:
        if method.phase(record["round"])[0].evaluated:
            assert np.isfinite([record["train_loss"], record["val_loss"]]).all()
    assert np.isfinite(training.records[-1]["val_loss"])
    start, weights = method.start(training.engine.parts[0].cohort), training.engine.personal()
    moved = {key for key, w in weights.items() if not torch.equal(w, start.get(f"model.{key}", start.get(key)))}
    assert moved >= set(method.shapes())


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_a_cohort_trains_as_its_clients_alone(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optim, "EPSILON", CALM)
    method = made(name, kind)
    if method is None:
        return  # see above
    one, two = (trained(method, size) for size in (None, 1))
    for mine, other in zip(one.records, two.records, strict=True):
        assert mine["bytes_up"] == other["bytes_up"]
        if method.phase(mine["round"])[0].evaluated:
            for key in ("train_loss", "val_loss", "val", "test"):
                assert mine[key] == pytest.approx(other[key], rel=1e-4, abs=1e-4), key
    ours, theirs = one.engine.personal(), two.engine.personal()
    assert list(ours) == list(theirs)
    for weight in ours:
        assert torch.allclose(ours[weight], theirs[weight], atol=2e-5), weight


@pytest.mark.parametrize("name", ["local", "fedavg", "fedper", "fedprox", "fedpub", "fedsheafhn", "quilt"])
@pytest.mark.parametrize("layers", [1, 3])
def test_these_refuse_none_whatever_the_number_of_layers(name: str, layers: int) -> None:
    for kind in Model.kinds:
        method = made(name, kind, layers=layers)
        assert method is not None, kind
        assert method.model.layers == layers
