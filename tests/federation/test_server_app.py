"""Flower's ServerApp: a run config in, a run folder out."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict

from fedquilt.errors import FedquiltError
from fedquilt.federation import server_app
from support.federations import ragged_clients
from support.flower_doubles import MemoryGrid, write_open_sites

USUAL = {"sites": 2, "method": "fedavg", "rounds": 2, "settings": '{"hidden": 8}', "wait": 5.0, "timeout": 5.0}


@pytest.fixture(autouse=True)
def outlive_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_app, "exit_with_parent", lambda: None)


def context(**run_config: Any) -> Context:
    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={**USUAL, **run_config})


def test_a_run_config_is_run_to_its_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients((25, 14))))
    with caplog.at_level(logging.INFO, "flwr"):
        server_app.main(grid, context(out=str(tmp_path / "run")))
    result = json.loads((tmp_path / "run" / "result.json").read_bytes())
    assert f"fedquilt: done: test {result['test_mean']:.2f} at the best validation round" in caplog.text


def test_what_is_wrong_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(FedquiltError):
        server_app.main(MemoryGrid([]), context(out=str(tmp_path / "run"), method="fedpup"))
    assert "did you mean 'fedpub'" in caplog.text
