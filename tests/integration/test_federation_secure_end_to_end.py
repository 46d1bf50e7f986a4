"""Secure aggregation with real processes, and sites that know each other's keys. `make test-e2e`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedquilt.federation.local.rehearsal import Rehearsal
from fedquilt.federation.secure.identity import site_identity
from fedquilt.federation.secure.keys import fingerprint
from fedquilt.federation.site.examples import write_sites
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import make_method, make_task, make_training, ragged_clients
from support.flower_doubles import edit_site, site_models
from support.rehearsals import SIZES, USUAL

pytestmark = pytest.mark.e2e


def test_sites_that_demand_masks_train_as_clients_in_process(tmp_path: Path) -> None:
    clients = ragged_clients(SIZES)
    sites = write_sites(tmp_path, clients, permits="all", secure_aggregation="required")
    keys = [fingerprint(site_identity(path.parent / "state").public) for path in sites]
    for m, path in enumerate(sites):
        edit_site(path, secure_peers=[key for other, key in enumerate(keys) if other != m])
    out = tmp_path / "run"
    order = {**USUAL, "method": "quilt", "settings": {"hidden": 8}, "rounds": 2, "out": str(out)}
    with Rehearsal(sites, tmp_path / "logs") as rehearsal:
        rehearsal.run({**order, "secure-aggregation": True})
    records = [json.loads(line) for line in (out / "seed-3" / "metrics.jsonl").read_text().splitlines()]
    assert [record["participants"] for record in records] == ["all"] * 2
    here = make_training(make_method("quilt", clients, make_task(clients)), clients, Plan(2))
    here.run()
    best = here.progress.best
    for m, (tensors, facts) in enumerate(site_models(tmp_path)):
        assert facts["round"] == best.round
        for name, tensor in tensors.items():
            assert_near(tensor, best.models[name][m])
