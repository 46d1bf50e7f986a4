"""Modules of finished runs and of sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.export.sources import module_of
from fedquilt.federation.site.config import read_site
from fedquilt.graphs.protocol import Protocol
from fedquilt.graphs.split import TEST
from fedquilt.methods.base import federated_methods
from fedquilt.methods.fedavg import FedAvg
from fedquilt.runs.config import RunConfig
from fedquilt.runs.folder import SeedFolder
from fedquilt.runs.resolve import ResolvedRun
from support.clients import assert_near
from support.federations import registered, small_settings
from support.small_runs import SMALL, own_graph
from support.trained_sites import logits_of, make_site


@pytest.mark.parametrize("name", federated_methods())
def test_a_run_gives_each_client_its_model(name: str, tmp_path: Path) -> None:
    """The exported models have the test accuracy of the run's result, in this process and from the folder."""
    graph, options = own_graph(), SMALL | {"settings": small_settings(name), "rounds": 2, "seeds": [0, 1]}
    run = fedquilt.run(name, graph, out=tmp_path / "run", **options)
    loaded = fedquilt.load_run(tmp_path / "run")
    for seed in (0, 1):
        config = RunConfig.build(options | {"method": name, "dataset": "@given"})
        clients = ResolvedRun(config, (graph, Protocol())).raw_clients(seed)
        tests = SeedFolder(tmp_path / "run" / f"seed-{seed}").summary["clients_test"]
        for client in clients:
            data = client.graph.to_data()
            logits = module_of(run, client=client.id, seed=seed)(data)
            assert torch.equal(module_of(loaded, client=client.id, seed=seed)(data), logits)
            asked = client.split == TEST
            share = np.mean(logits.argmax(1).numpy()[asked] == client.graph.y[asked])
            assert 100 * share == pytest.approx(tests[client.id])
    assert torch.equal(module_of(tmp_path / "run", client=1)(data), module_of(run, client=1, seed=0)(data))


def test_a_run_on_a_prepared_graph_gives_models_for_the_graph_as_it_is(tmp_path: Path) -> None:
    run = fedquilt.run("fedavg", "patchwork", **SMALL)
    _, protocol = load_graph("patchwork")
    assert module_of(run, client=0).personal.normalise_features == protocol.normalise_features


def test_a_client_that_is_not_there_is_one_sentence() -> None:
    run = fedquilt.run("fedavg", own_graph(), **SMALL)
    with pytest.raises(FedquiltError, match="has no client 3; choose one of 0 to 2"):
        module_of(run, client=3)
    with pytest.raises(FedquiltError, match="say whose model you want with client=0 to 2"):
        module_of(run)
    with pytest.raises(FedquiltError, match="has no models of seed 5; choose one of: 0"):
        module_of(run, client=0, seed=5)
    run.facts[0].pop("task")
    with pytest.raises(FedquiltError, match="was saved without what is needed"):
        module_of(run, client=0)


def test_a_site_has_one_model(tmp_path: Path) -> None:
    path, method, client, models = make_site(tmp_path)
    module = module_of(path)
    assert_near(module(client.graph.to_data()).detach(), logits_of(method, client, models))
    assert module.class_names == ("blue", "green", "red")
    assert torch.equal(module_of(read_site(path))(client.graph.to_data()), module(client.graph.to_data()))
    with pytest.raises(FedquiltError, match="A site has one model, its own"):
        module_of(path, client=2)


class Doubled(FedAvg):
    """FedAvg whose logits are its own."""

    title, paper = "Doubled", "this test"

    def logits(self, personal: Any, cohort: Any) -> torch.Tensor:
        return 2 * super().logits(personal, cohort)


def test_a_method_with_a_network_of_its_own_is_exported_as_it_is() -> None:
    graph = own_graph()
    with registered(Doubled, "doubled"):
        doubled = module_of(fedquilt.run("doubled", graph, **SMALL), client=0)(graph.to_data())
    plain = module_of(fedquilt.run("fedavg", graph, **SMALL), client=0)(graph.to_data())
    assert torch.equal(doubled, 2 * plain)
