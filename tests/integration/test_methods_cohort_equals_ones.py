"""The simulation equals the deployment: a cohort of M clients trains as M cohorts of one do, whatever the method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedquilt.methods.base import federated_methods, methods
from fedquilt.nn import optim
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.federations import make_method, make_task, make_training, ragged_clients

ROUNDS = 3
# Epochs, sparse features, the share that takes part: each pair of them once, and in `make test-long` all of them. Cohorts of
# three are between all and one; they are trained where features are dense and some sit out.
TASKS = [(1, False, 1.0), (2, False, 0.6), (2, True, 1.0), (1, True, 0.6)]
REST = [(1, False, 0.6), (2, False, 1.0), (2, True, 0.6), (1, True, 1.0)]
# Attention's gradients are sums of terms that cancel, which Adam divides by their own size: rounding becomes a step (PyG's
# own layer in single precision is as far from double precision). A larger epsilon takes that out, here and in what else
# divides by small numbers.
# FedIIH divides a factor's part of a node by its length: where dropout leaves one number of it, that is a sign, whose
# gradient is rounding alone. It shows where a weight is read by one node only, as with sparse features (without dropout it
# does not); factors are eight wide there and epsilon is larger, too.
CALM = 1e-4
FEDPUB: list[dict[str, Any]] = [
    *({"similarity": kind} for kind in ("parameter", "gradient", "label")),
    *({"graph": kind} for kind in ("er", "one", "feature")),
    {"communities": "explicit"},
    {"masking": False},
    {"matching": False},
    {"contrast": "centred"},
    {"lasting": 1.0, "limit": 0.0},
    {"upload": "plain", "lasting": 1.0},
    {"lasting": 0.0, "limit": 0.9},
    {"threshold": 0.5},
    {"threshold": 0.5, "upload": "plain"},
    {"threshold": 0.5, "matching": False, "l1": 0.1, "proximal": 0.1},
    {"similarity": "parameter", "model": "sage"},
    {"graph": "feature", "model": "gat"},
]
FEDIIH: list[dict[str, Any]] = [
    {"classify": "both"},
    {"divergence": "mean"},
    {"scale": "absolute"},
    {"scale": "relative"},
    {"hierarchy": False},
    {"variational": False},
    {"variational": False, "gaussians": "moments"},
    {"disentangle": False},
    {"wide": True},
    {"through": True},
    {"layers": 1},
    {"layers": 5, "hidden": 64},
]
FEDSSA: list[dict[str, Any]] = [
    *({"basis": kind} for kind in ("monomial", "chebyshev", "bernstein")),
    {"semantic": False},
    {"structural": False},
    {"semantic": False, "structural": False},
    {"components": 3},
    {"elbo": 0.1},
    {"elbo": 0.0},
    {"encoder": "separate"},
    {"classify": "mean"},
    {"node_clusters": 20, "structure_clusters": 20},
]
FEDSHEAFHN: list[dict[str, Any]] = [
    {"refresh": 1},
    {"refresh": 0, "fresh_moments": False},
    {"client_vector": "one-hot"},
    *({"diffusion": kind} for kind in ("gcn", "gat", "none")),
    {"attention": False, "model": "sage"},
]
# Fewer latent neighbours than most clients have nodes, so that there is something to choose.
FEDHERO: list[dict[str, Any]] = [
    *({"learner": kind} for kind in ("heads", "cosine", "attention", "gat", "glcn", "gaug")),
    {"channels": 1},
    {"latent": "bernoulli"},
    {"latent": "bernoulli", "learner": "cosine", "k": 30},
    {"own_dropout": 0.5},
    {"alpha": 0.0, "smoothness": 0.0, "concentration": 0.0},
    *({"share": kind} for kind in ("gcn", "all", "none")),
    {"share_projection": False, "k": 2},
]
QUILT: list[dict[str, Any]] = [
    *({"basis": kind} for kind in ("monomial", "chebyshev")),
    {"identity": 4},
    {"evidence": False, "masks": False},
    {"reach": 0.0, "order": 1, "groups": 1},
    {"share": "filter,layer"},
    {"share": ""},
    {"model": "sage"},
]


def named(settings: dict[str, Any]) -> str:
    return ",".join(f"{k}={v}" for k, v in settings.items())


def train(
    name: str, settings: dict[str, Any], sparse: bool, participation: float, cohort_size: int | None, epochs: int
) -> Training:
    clients = ragged_clients(sparse=sparse)
    method = make_method(name, clients, make_task(clients, epochs=epochs), **settings)
    training = make_training(method, clients, Plan(ROUNDS, participation), cohort_size)
    training.run()
    return training


def assert_alike(one: Training, two: Training) -> None:
    assert len(one.records) == len(two.records) == one.plan.rounds
    for mine, other in zip(one.records, two.records, strict=True):
        assert set(mine) == set(other)
        if one.method.phase(mine["round"])[0].evaluated:
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


@pytest.mark.parametrize(
    ("epochs", "sparse", "participation"), TASKS + [pytest.param(*task, marks=pytest.mark.long) for task in REST]
)
@pytest.mark.parametrize("name", federated_methods())
def test_a_cohort_trains_as_its_clients_alone(
    name: str, epochs: int, sparse: bool, participation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optim, "EPSILON", CALM)
    settings: dict[str, Any] = {"hidden": 32} if name == "fediih" and sparse else {}
    whole = train(name, settings, sparse, participation, None, epochs)
    for size in (1, 3) if (sparse, participation) == (False, 0.6) else (1,):
        assert_alike(train(name, settings, sparse, participation, size, epochs), whole)


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("settings", FEDPUB, ids=named)
def test_fedpub_in_all_its_variants(
    settings: dict[str, Any], participation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.get("model") == "gat":
        monkeypatch.setattr(optim, "EPSILON", CALM)
    whole = train("fedpub", settings, False, participation, None, 2)
    for size in (1, 3):
        assert_alike(train("fedpub", settings, False, participation, size, 2), whole)


@pytest.mark.parametrize(
    ("name", "settings"),
    [pytest.param("fediih", s, id="fediih-" + named(s)) for s in FEDIIH]
    + [pytest.param("fedssa", s, id="fedssa-" + named(s)) for s in FEDSSA],
)
def test_fediih_and_fedssa_in_all_their_variants(name: str, settings: dict[str, Any]) -> None:
    assert_alike(train(name, settings, False, 0.6, 1, 2), train(name, settings, False, 0.6, None, 2))


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("settings", FEDSHEAFHN, ids=named)
def test_fedsheafhn_in_all_its_variants(settings: dict[str, Any], participation: float) -> None:
    small = {"width": 16, "warmup": 3, **settings}
    whole = train("fedsheafhn", small, False, participation, None, 2)
    for size in (1, 3):
        assert_alike(train("fedsheafhn", small, False, participation, size, 2), whole)


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("settings", FEDHERO, ids=named)
def test_fedhero_in_all_its_variants(
    settings: dict[str, Any], participation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.get("learner") == "gat":
        monkeypatch.setattr(optim, "EPSILON", CALM)
    small = {"k": 4, "learner_hidden": 8, **settings}
    whole = train("fedhero", small, False, participation, None, 2)
    for size in (1, 3):
        assert_alike(train("fedhero", small, False, participation, size, 2), whole)


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("settings", QUILT, ids=named)
def test_quilt_in_all_its_variants(settings: dict[str, Any], participation: float) -> None:
    whole = train("quilt", settings, True, participation, None, 2)
    for size in (1, 3):
        assert_alike(train("quilt", settings, True, participation, size, 2), whole)


@pytest.mark.parametrize("name", [n for n in methods() if n != "majority"])
def test_clients_learn_and_use_dropout(name: str) -> None:
    """Guards the tests above: training does something, and dropout is part of it."""
    trained = train(name, {}, False, 1.0, None, 2)
    start = make_method(name, trained.engine.parts[0].cohort.members).start(trained.engine.parts[0].cohort)
    before = {n: start.get(f"model.{n}", start.get(n)) for n in trained.engine.personal()}
    moved = [float((w - before[n]).abs().max()) for n, w in trained.engine.personal().items()]
    assert min(moved) > 1e-3
    own = {"fedssa": ["input_dropout"], "quilt": ["feature_dropout", "node_dropout"]}
    calm = dict.fromkeys(["dropout", *own.get(name, [])], 0.0)
    plain = train(name, calm, False, 1.0, None, 2)
    first = next(n for n in before if n.endswith(".weight"))
    assert not torch.equal(plain.engine.personal()[first], trained.engine.personal()[first])
    losses = [record["train_loss"] for record in plain.records if "train_loss" in record]
    assert len(losses) >= ROUNDS
    # After FedSheafHN's warm-up, which is round 0, the graph layers begin at the common start again.
    assert np.diff(losses[1:] if name == "fedsheafhn" else losses).max() < 0
