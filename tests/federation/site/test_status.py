"""What a site did so far, from what it noted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.site.ledger import Ledger
from fedquilt.federation.site.state import run_folders
from fedquilt.federation.site.status import site_status
from fedquilt.privacy.accountant import spent_epsilon
from support.federations import ragged_clients
from support.flower_doubles import MemoryGrid, ask, edit_site, federation, last_request, write_open_sites
from support.trained_sites import as_file, write_site

SIZES = (25, 14)


def test_a_site_that_was_never_asked(tmp_path: Path) -> None:
    found = site_status(write_site(tmp_path, as_file(ragged_clients((12,))[0])))
    assert (found.first_contact, found.last_contact, found.rounds, found.runs) == (None, None, 0, [])
    assert (found.left, found.epsilon, found.incident_count, found.disk_bytes) == ({}, None, 0, 0)
    assert not (tmp_path / "state").exists()


def test_rounds_contacts_what_left_epsilon_and_incidents(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    dp = {"clip": 1.0, "noise": 20.0, "delta": 1e-5, "epsilon": 3.0}
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES), dp=dp))
    federation(tmp_path, ragged_clients(SIZES), grid, method="fedper", rounds=3).run()
    site = tmp_path / "site-0/site.yaml"
    found = site_status(site)
    (run,) = found.runs
    assert (run.method, run.trained, run.rounds, run.state) == ("fedper", 3, 3, "finished")
    (folder,) = run_folders(site.parent / "state")
    lines = Ledger(folder).lines()
    assert run.bytes == sum(line["bytes"] for line in lines)
    assert {name: left.times for name, left in found.left.items()} == dict.fromkeys({x["name"] for x in lines}, 3)
    assert found.epsilon == pytest.approx(spent_epsilon(20.0, 3, 1e-5))
    assert (found.budget, found.protected_uploads, found.rounds) == (3.0, 3, 3)
    assert found.requests == {"hello": 1, "round": 3, "finish": 1}
    assert found.last_contact is not None
    assert found.incidents == []
    _, header, body = last_request(grid, node=1000)
    edit_site(site, permits=["train_nodes"])
    assert "does not permit" in ask(grid, 1000, {**header, "round": 3}, body)[0]["refused"]
    found = site_status(site)
    assert (found.incident_count, found.incidents[0]["what"], found.incidents[0]["round"]) == (1, "refused", 3)
    assert json.loads(json.dumps(found.to_dict()))["runs"][0]["left"]["train_nodes"]["times"] == 3
    said = (site.parent / "state/site.log").read_text()
    assert f"Round 0 of run {run.run} (fedper): 5 tensors leave" in said
    assert "epsilon is " in said
    assert f"Run {run.run} (fedper) is finished" in said
    assert "INCIDENT refused" in said


def test_a_deleted_run_is_known_by_its_ledger(tmp_path: Path) -> None:
    federation(tmp_path, ragged_clients(SIZES), method="fedavg", rounds=1).run()
    site = tmp_path / "site-0/site.yaml"
    (folder,) = run_folders(site.parent / "state")
    before = site_status(site).left
    Ledger(folder).archive(site.parent / "state", folder.name)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    (run,) = site_status(site).runs
    assert (run.run, run.state, run.method, run.left) == (folder.name, "deleted", None, before)


def test_what_may_not_be_read_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_site(tmp_path, as_file(ragged_clients((12,))[0]))

    def forbidden(_: Path) -> list[Path]:
        raise PermissionError(13, "Permission denied", str(tmp_path / "state"))

    monkeypatch.setattr("fedquilt.federation.site.status.run_folders", forbidden)
    with pytest.raises(
        FedquiltError, match=r"state cannot be read by this user \(Permission denied\); run this as the"
    ):
        site_status(path)
