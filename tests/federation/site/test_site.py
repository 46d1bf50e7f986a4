"""A site opened from its site.yaml: its introduction, and when it reports metrics."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.site.site import open_site
from support.federations import make_method, ragged_clients
from support.flower_doubles import write_open_sites


def test_an_introduction_has_hashes_of_names_and_not_the_names(tmp_path: Path) -> None:
    (client,) = ragged_clients((12,))
    names = tuple(f"secret-{n}" for n in range(client.graph.classes))
    named = replace(client, graph=replace(client.graph, class_names=names))
    (path,) = write_open_sites(tmp_path, [named], permits=["model"])
    introduction = open_site(path).introduction()
    assert (introduction.name, introduction.features, introduction.classes) == ("site-0", 10, 3)
    assert introduction.class_names == hashlib.sha256(json.dumps(names).encode()).hexdigest()
    assert introduction.feature_names is None
    assert (introduction.permits, introduction.protected) == (["model"], False)
    assert introduction.nodes is not None
    assert introduction.nodes.bit_count() == 1  # a power of two: how many nodes there are at most
    assert "secret" not in json.dumps(introduction.to_header())


def test_state_and_ledger_of_a_run_share_a_folder(tmp_path: Path) -> None:
    site = open_site(write_open_sites(tmp_path, ragged_clients((12,)))[0])
    assert site.state("0123abcd").folder == site.ledger("0123abcd").path.parent == tmp_path / "site-0/state/0123abcd"


def test_metrics_are_reported_while_the_budget_lasts(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    dp = {"clip": 1.0, "noise": 20.0, "delta": 1e-5, "epsilon": 0.85}
    plain, silent, reporting, quiet = (
        open_site(write_open_sites(tmp_path / name, ragged_clients((12,)), **fields)[0])
        for name, fields in {
            "a": {},
            "b": {"permits": ["model"]},
            "c": {"dp": {**dp, "report": True}},
            "d": {"dp": dp},
        }.items()
    )
    assert [site.reports_metrics(9) for site in (plain, silent, reporting, quiet)] == [True, False, True, False]
    while reporting.budget.affords(20.0):
        reporting.budget.spend(20.0)
    assert not reporting.reports_metrics(9)


def test_noise_is_for_methods_that_send_something(tmp_path: Path) -> None:
    clients = ragged_clients((12,))
    protected = open_site(write_open_sites(tmp_path, clients, dp={"clip": 1.0, "noise": 2.0, "delta": 1e-5})[0])
    assert protected.privatiser(make_method("fedavg", clients), 3) is not None
    assert protected.privatiser(make_method("local", clients), 3) is None


def test_a_site_has_settings_of_its_own_where_the_method_lets_it(tmp_path: Path) -> None:
    clients = ragged_clients((12,))
    site = open_site(write_open_sites(tmp_path, clients, settings={"lr": 0.005, "epochs": 2})[0])
    client = site.client(0, make_method("fedavg", clients))
    assert client.settings == {"lr": 0.005, "epochs": 2}
    with pytest.raises(
        FedquiltError, match="'lr' of method 'fedpub' cannot be set for the site alone; weight_decay, epochs"
    ):
        site.client(0, make_method("fedpub", clients))
