"""Clients with networks of their own: in a cohort or alone, in this process or at sites, resumed, exported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.export.sources import module_of
from fedquilt.federation.site.config import read_site
from fedquilt.federation.site.predict import predict
from fedquilt.methods.base import Method
from fedquilt.nn.module_backbone import BACKBONES, register_backbone
from fedquilt.runs.config import RunConfig
from fedquilt.runs.execute import resume_run
from fedquilt.runs.predict import personal_of_run
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.cli import interrupt_at, outcome
from support.clients import assert_near
from support.federations import make_method, make_task, make_training, ragged_clients
from support.flower_doubles import MemoryGrid, edit_site, federation, site_models, write_open_sites

OWN: dict[int, dict[str, Any]] = {
    1: {"model": "sage", "hidden": 6},
    2: {"layers": 1},
    4: {"model": "sage", "hidden": 6},
}
MIXING = ("fedproto", "local")


def mixed_clients() -> list[Client]:
    return [replace(client, settings=OWN.get(client.id, {})) for client in ragged_clients()]


def mixed_method(name: str, clients: list[Client], **settings: Any) -> Method:
    plain = make_method(name, clients, make_task(clients, epochs=2), **settings)
    return type(plain)(plain.settings_with(OWN.values()), plain.context)


def train(name: str, cohort_size: int | None = None, participation: float = 1.0, **settings: Any) -> Training:
    clients = mixed_clients()
    training = make_training(mixed_method(name, clients, **settings), clients, Plan(3, participation), cohort_size)
    training.run()
    return training


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("name", MIXING)
def test_a_mixed_cohort_trains_as_its_clients_alone(name: str, participation: float) -> None:
    whole = train(name, None, participation)
    for size in (1, 3):
        other = train(name, size, participation)
        for key, tensor in whole.engine.state().items():
            assert torch.allclose(other.engine.state()[key].double(), tensor.double(), atol=1e-5, equal_nan=True), key


@pytest.mark.parametrize("name", MIXING)
def test_a_client_has_one_network_and_zeros_in_place_of_the_others(name: str) -> None:
    training = train(name)
    method, models = training.method, training.engine.personal()
    assert method.settings.networks == "sage-6-2,gcn-8-1"
    for client in mixed_clients():
        own = {key: w[client.id] for key, w in models.items()}
        mine = method.client_weights(own, client.settings)
        single = method.as_client(client.settings)
        assert {key: tuple(w.shape) for key, w in mine.items()} == single.personal_shapes()
        assert sum(bool(w.any()) for w in own.values()) == sum(bool(w.any()) for w in mine.values())
        alone = single.logits({key: w.unsqueeze(0) for key, w in mine.items()}, Cohort([client]))
        cohort = training.engine.cohorts[0]
        assert_near(cohort.parts_of(method.logits(models, cohort))[client.id], alone)


def test_who_trains_alone_is_not_changed_by_what_others_have() -> None:
    training = train("local")
    for client in mixed_clients():
        single = training.method.as_client(client.settings)
        alone = make_training(single, [replace(client, settings={})], Plan(3))
        alone.run()
        row = {key: w[client.id] for key, w in training.engine.personal().items()}
        for key, w in training.method.client_weights(row, client.settings).items():
            assert_near(alone.engine.personal()[key][0], w)


def test_networks_that_are_all_the_same_change_nothing() -> None:
    clients = ragged_clients()
    plain = make_method("fedproto", clients)
    assert plain.settings_with([{"model": "gcn"}, {"lr": 0.1}]) == plain.settings
    assert plain.as_client({"lr": 0.1}) is plain


def test_prototypes_are_as_wide_as_the_runs_whatever_the_network() -> None:
    clients = mixed_clients()
    method = mixed_method("fedproto", clients, prototype_width=5)
    update = method.local_update(method.start(Cohort(clients)), Cohort(clients), {}, 0)
    assert update.upload["prototype"].shape == (5, 3, 5)
    assert method.as_client({"hidden": 6}).personal_shapes()["embedding.weight"] == (6, 5)


@pytest.mark.parametrize("name", MIXING)
def test_sites_with_networks_of_their_own_train_as_clients_in_process(name: str, tmp_path: Path) -> None:
    clients = [replace(client, settings={}) for client in mixed_clients()]
    sites = write_open_sites(tmp_path, clients)
    for number, own in OWN.items():
        edit_site(sites[number], settings=own)
    there = federation(tmp_path, clients, MemoryGrid(sites), method=name, rounds=3, epochs=2)
    there.run()
    assert there.incidents.all == []
    here = train(name)
    best = here.progress.best
    for mine, other in zip(there.folder.seed(3).records(), here.records, strict=True):
        assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)
        assert mine["clients"]["test"] == pytest.approx(other["clients"]["test"], abs=1e-5)
        assert mine["bytes_up"] == other["bytes_up"]
    for m, (tensors, facts) in enumerate(site_models(tmp_path)):
        own = OWN.get(m, {})
        expected = here.method.client_weights({key: w[m] for key, w in best.models.items()}, own)
        assert set(tensors) == set(expected)
        for key, tensor in tensors.items():
            assert_near(tensor, expected[key])
        assert (facts["settings"]["model"], facts["settings"]["networks"]) == (own.get("model", "gcn"), "")
    values = predict(read_site(sites[1])).values
    outputs = here.method.logits(best.models, here.engine.cohorts[0])
    assert np.allclose(values, here.engine.cohorts[0].parts_of(outputs.softmax(1))[1].detach(), atol=1e-5)


OPTIONS: dict[str, Any] = {"clients": 3, "rounds": 4, "device": "cpu", "settings": {"hidden": 8}}
NETWORKS = {"1": {"model": "sage", "hidden": 4}, "2": {"model": "mlp"}}


@pytest.mark.parametrize("name", MIXING)
def test_a_run_exports_each_client_its_own_network(name: str, tmp_path: Path) -> None:
    fedquilt.run(name, "patchwork", out=tmp_path / "run", client_settings=NETWORKS, **OPTIONS)
    run = fedquilt.load_run(tmp_path / "run")
    resolved = ResolvedRun(
        RunConfig.build({"method": name, "dataset": "patchwork", "client_settings": NETWORKS, **OPTIONS})
    )
    for client in resolved.clients(0):
        personal = personal_of_run(run, client.id)
        own = {"model": "gcn", "hidden": 8} | NETWORKS.get(str(client.id), {})
        assert {key: getattr(personal.method.settings, key) for key in own} == own
        personal.check()
        module = module_of(run, client=client.id)
        outputs = module(client.graph.to_data())
        assert np.allclose(run.predict(client=client.id).values, outputs.softmax(1).detach(), atol=1e-5)


def test_a_mixed_run_resumes_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = OPTIONS | {"client_settings": NETWORKS, "checkpoint_seconds": 0}
    fedquilt.run("fedproto", "patchwork", out=tmp_path / "whole", **options)
    with monkeypatch.context() as patched:
        interrupt_at(patched, 2, "fedproto")
        with pytest.raises(KeyboardInterrupt):
            fedquilt.run("fedproto", "patchwork", out=tmp_path / "parts", **options)
    resume_run(tmp_path / "parts")
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


@pytest.mark.parametrize(
    ("method", "own", "sentence"),
    [
        ("fedproto", {"model": "gnc"}, "The setting model='gnc' of method 'fedproto' is not possible"),
        ("fedproto", {"hidden": 0}, "The setting hidden=0 of method 'fedproto'"),
        ("fedproto", {"classify": "prototype"}, "cannot be set for client 1 alone"),
        ("fedavg", {"model": "sage"}, "cannot be set for client 1 alone; lr, weight_decay, epochs can differ"),
    ],
    ids=str,
)
def test_an_impossible_network_is_a_sentence_before_training(method: str, own: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedquiltError, match=sentence):
        fedquilt.run(method, "patchwork", client_settings={"1": own}, **OPTIONS)


def test_an_impossible_list_of_networks_is_a_sentence() -> None:
    for networks in ("sage", "sage-64", "nothing-64-2", "sage-0-2"):
        with pytest.raises(FedquiltError, match="The setting networks="):
            make_method("fedproto", ragged_clients(), networks=networks)


class OwnModule(torch.nn.Module):
    """A user's network without edges."""

    def __init__(self, features: int, classes: int, settings: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(features, classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_one_client_may_have_a_module_of_the_users() -> None:
    register_backbone("own-module")(OwnModule)
    try:
        mixed = fedquilt.run("local", "patchwork", client_settings={"1": {"model": "own-module"}}, **OPTIONS)
        alone = fedquilt.run("local", "patchwork", **OPTIONS | {"settings": {"hidden": 8, "model": "own-module"}})
        for name, w in personal_of_run(mixed, 1).weights.items():
            assert torch.equal(w, alone.models[0][name][1])
        with pytest.raises(FedquiltError, match="Method 'fedproto' needs a network of fedquilt's own"):
            fedquilt.run("fedproto", "patchwork", client_settings={"1": {"model": "own-module"}}, **OPTIONS)
    finally:
        BACKBONES.remove("own-module")
