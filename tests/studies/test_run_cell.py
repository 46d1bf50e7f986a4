"""One cell: trained or resumed, measured and stored."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedquilt.runs.compute_version import COMPUTE_VERSION
from fedquilt.runs.config import RunConfig
from fedquilt.runs.folder import RunFolder
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.studies.cells import Cell
from fedquilt.studies.run_cell import BROKEN, DONE, FAILED, run_cell
from fedquilt.studies.store import CellStore
from support.tiny_studies import cells_of, study_of


def test_what_was_killed_before_its_configuration_starts_anew(tmp_path: Path, cell: Cell) -> None:
    store = CellStore(tmp_path / "a")
    store.folder(cell).mkdir(parents=True)
    (store.folder(cell) / ".lock").touch()
    (store.folder(cell) / "seed-0").mkdir()
    assert run_cell(cell, store) == DONE


def test_a_cell_goes_on_with_the_device_and_the_data_of_now(trained: tuple[Cell, Path], tmp_path: Path) -> None:
    cell, path = trained
    store = CellStore(tmp_path)
    shutil.copytree(path, store.folder(cell))
    run = RunFolder(store.folder(cell))
    run.config = run.config | {"device": "cuda:77", "data": "/nowhere/on/this/machine"}
    assert run_cell(cell, store) == DONE


@pytest.mark.parametrize("change", ["config", "seal", "summary"])
def test_a_cell_that_was_begun_on_something_else_begins_again_or_fails(
    trained: tuple[Cell, Path], tmp_path: Path, change: str
) -> None:
    cell, path = trained
    store = CellStore(tmp_path)
    shutil.copytree(path, store.folder(cell))
    run = RunFolder(store.folder(cell))
    if change == "config":
        run.config = run.config | {"split": "60/20/20"}
    elif change == "seal":
        (run.path / "seal.json").unlink()
    else:
        summary = run.path / "seed-0" / "summary.json"
        summary.write_text(json.dumps(json.loads(summary.read_text()) | {"test": 99.9}))
        assert run_cell(cell, store) == FAILED
        assert "summary.json was changed: its test is 99.9" in store.failures()[cell.identity]
        return
    assert run_cell(cell, store) == DONE
    stored = store.get(cell)
    assert stored is not None
    said = {"config": 'split was "20/40/40" and is now "60/20/20"', "seal": "seal.json is gone"}
    assert said[change] in stored.facts["begun_again"]
    assert stored.measures["test"] == json.loads((path / "seed-0" / "summary.json").read_text())["test"]


def test_a_cell_that_an_earlier_version_began_goes_on(
    trained: tuple[Cell, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, path = trained
    store = CellStore(tmp_path)
    shutil.copytree(path, store.folder(cell))
    run = RunFolder(store.folder(cell))
    run.config = run.config | {"versions": {"computation": COMPUTE_VERSION, "fedquilt": "0.0.9"}}
    for seal in run.path.rglob("seal.json"):
        seal.unlink()
    (run.path / "seed-0" / "summary.json").unlink()
    assert run_cell(cell, store) == DONE
    stored = store.get(cell)
    assert stored is not None
    assert "begun_again" not in stored.facts
    assert run.seal is not None


@pytest.mark.parametrize("kind", ["oracle", "partition", "run"])
def test_each_kind_of_cell_is_run_and_measured(tmp_path: Path, kind: str) -> None:
    values = {
        "run": {"test": "T", "test.neighbour": "N", "links.weights": "L"},
        "oracle": {"test": "T"},
        "partition": {"nodes": "N"},
    }[kind]
    study = study_of(tmp_path, of=kind, values=values, seeds=1)
    cell, store = cells_of(study)[1], CellStore(tmp_path / "studies")
    rounds: list[tuple[int, int]] = []
    assert run_cell(cell, store, on_round=lambda *told: rounds.append(told)) == DONE
    stored = store.get(cell)
    assert stored is not None
    assert all(stored.measures[value] is not None for value in values)
    assert rounds == ([] if kind == "partition" else [(1, 3), (2, 3), (3, 3)])
    assert stored.facts["kind"] == kind
    assert "data" not in stored.facts["config"]
    assert stored.facts["device"] == "CPU"
    if kind == "partition":
        assert stored.measures["nodes"] == ResolvedRun(cell.config).graph.nodes / 3


@pytest.mark.parametrize(("kind", "resolved"), [("oracle", 2), ("partition", 1), ("run", 1)])
def test_a_run_is_resolved_once_and_an_oracle_once_more_on_the_whole_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, resolved: int
) -> None:
    cell = cells_of(study_of(tmp_path, of=kind, values={"test": "T", "test.neighbour": "N"}, seeds=1))[1]
    counted = count_resolved(monkeypatch)
    assert run_cell(cell, CellStore(tmp_path / "studies")) == DONE
    assert len(counted) == resolved
    assert [config.clients for config in counted] == [3, 1][:resolved]


def test_a_resumed_cell_is_resolved_once(
    trained: tuple[Cell, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, path = trained
    store = CellStore(tmp_path)
    shutil.copytree(path, store.folder(cell))
    counted = count_resolved(monkeypatch)
    rounds: list[tuple[int, int]] = []
    assert run_cell(cell, store, on_round=lambda *told: rounds.append(told)) == DONE
    assert len(counted) == 1
    assert rounds == []  # all rounds were trained before


def count_resolved(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """The configurations that are resolved from now on."""
    counted: list[RunConfig] = []
    resolve = ResolvedRun.__init__

    def count(self: ResolvedRun, config: RunConfig, *rest: Any) -> None:
        counted.append(config)
        resolve(self, config, *rest)

    monkeypatch.setattr(ResolvedRun, "__init__", count)
    return counted


def test_the_reason_of_a_failure_is_stored_and_an_unexpected_error_is_told_apart(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CellStore(tmp_path)
    refused = replace(cell, config=cell.config.model_copy(update={"settings": {"colour": 1}}))
    assert run_cell(refused, store) == FAILED
    assert "colour" in store.failures()[refused.identity]

    def broken(*_: Any) -> None:
        raise RuntimeError("no\n memory")

    monkeypatch.setattr("fedquilt.studies.run_cell.run_seeds", broken)
    assert run_cell(cell, store) == BROKEN
    assert store.failures()[cell.identity] == "something went wrong inside: RuntimeError: no memory"
