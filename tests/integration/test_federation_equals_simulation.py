"""The deployment equals the simulation: sites over Flower's messages train as clients in this process do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedquilt.cohort.sampled_neighbours import parse_fan_out
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import federated_methods
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import make_method, make_task, make_training, ragged_clients
from support.flower_doubles import federation, site_models, site_states

ROUNDS, SIZES = 3, (25, 14, 31)
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in federated_methods()),
    ("fedpub", {"threshold": 0.5}),
    ("fedpub", {"similarity": "label"}),
    ("fedpub", {"similarity": "gradient"}),
    ("fediih", {"divergence": "mean"}),
    ("fedssa", {"components": 3}),
    ("fedsheafhn", {"client_vector": "one-hot", "warmup": 2, "refresh": 1}),
    ("fedhero", {"share": "all", "k": 3}),
    ("quilt", {"identity": 4}),
]


def in_process(name: str, settings: dict[str, Any], participation: float) -> Training:
    clients = ragged_clients(SIZES)
    method = make_method(name, clients, make_task(clients, rounds=ROUNDS), **settings)
    training = make_training(method, clients, Plan(ROUNDS, participation))
    training.run()
    return training


def assert_alike(there: Any, here: Training, folder: Path) -> None:
    records = there.folder.seed(3).records()
    assert len(records) == len(here.records)
    for mine, other in zip(records, here.records, strict=True):
        if here.method.phase(other["round"])[0].evaluated:
            for key in ("val", "test", "train_loss", "val_loss"):
                assert mine[key] == pytest.approx(other[key], rel=1e-5, abs=1e-5), (mine["round"], key)
            for part in ("val", "test"):
                assert mine["clients"][part] == pytest.approx(other["clients"][part], abs=1e-5)
        for key in ("participants", "bytes_up", "bytes_down"):
            assert mine[key] == other[key], key
    best = here.progress.best
    assert there.folder.result["seeds"][0]["best_round"] == best.round
    for m, (tensors, facts) in enumerate(site_models(folder)):
        assert facts["round"] == best.round
        assert facts["finished"]
        assert set(tensors) == set(best.models)
        for name, tensor in tensors.items():
            assert_near(tensor, best.models[name][m])
    state = here.engine.state()
    for m, tensors in enumerate(site_states(folder)):
        for name in set(state) - {n for n in state if n.startswith("figures.")}:
            assert_near(tensors[name][0].double(), state[name][m].double())


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=lambda v: v if isinstance(v, str) else str(v)[1:-1])
def test_sites_train_as_clients_in_process(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    there = federation(tmp_path, ragged_clients(SIZES), method=name, settings=settings, rounds=ROUNDS)
    there.run()
    assert [line["reason"] for line in there.incidents.all] == []
    assert_alike(there, in_process(name, settings, 1.0), tmp_path)


@pytest.mark.parametrize("name", ["fedavg", "fedpub", "fedssa", "quilt"])
def test_some_sites_a_round(name: str, tmp_path: Path) -> None:
    there = federation(tmp_path, ragged_clients(SIZES), method=name, rounds=ROUNDS, participation=0.6)
    there.run()
    assert_alike(there, in_process(name, {}, 0.6), tmp_path)


@pytest.mark.parametrize("fan_out", ["", "3,2"], ids=["clusters", "neighbours"])
@pytest.mark.parametrize("name", ["fedavg", "quilt"])
def test_sites_train_on_parts_as_clients_in_process(name: str, fan_out: str, tmp_path: Path) -> None:
    options = {"batch_nodes": 10} | ({"fan_out": fan_out} if fan_out else {})
    there = federation(tmp_path, ragged_clients(SIZES), method=name, rounds=ROUNDS, **options)
    there.run()
    assert [line["reason"] for line in there.incidents.all] == []
    clients = ragged_clients(SIZES)
    here = make_training(
        make_method(name, clients, make_task(clients, rounds=ROUNDS, batch_nodes=10, fan_out=parse_fan_out(fan_out))),
        clients,
        Plan(ROUNDS),
    )
    here.run()
    assert_alike(there, here, tmp_path)


@pytest.mark.parametrize(
    ("method", "nodes", "sentence"), [("fedssa", 12, "parts of a site's graph"), ("fedavg", 9, "less than 10 nodes")]
)
def test_batches_that_cannot_be_are_refused(method: str, nodes: int, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match=sentence):
        federation(tmp_path, ragged_clients(SIZES), method=method, rounds=ROUNDS, batch_nodes=nodes).run()
