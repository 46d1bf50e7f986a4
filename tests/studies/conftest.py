"""What the tests of studies share: a cell, a trained one, and a study that was run."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedquilt.studies import workers
from fedquilt.studies.cells import Cell
from fedquilt.studies.exchange import export_cells
from fedquilt.studies.run_cell import DONE, run_cell
from fedquilt.studies.runner import run_studies
from fedquilt.studies.spec import find_study
from fedquilt.studies.store import CellStore
from support.tiny_studies import PUBLISHED, Inline, cells_of, store_cell, study_of, write_study


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The folder of a study that was run, with a candidate that fails."""
    folder = tmp_path_factory.mktemp("page")
    axes = {
        "method": [
            {"label": "Local", "method": "local"},
            {"label": "FED-PUB", "method": "fedpub", "candidates": [{"lr": 0.01}, {"lr": 1e30}]},
            {"label": "Of tomorrow", "method": "tomorrows"},
        ],
        "clients": [2, 3],
    }
    write_study(folder, axes=axes, published=PUBLISHED, notes=["A note."], values={"test": "Test (%)", "test@2": "Two"})
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(workers, "WorkerProcess", Inline)
        study = find_study("tiny.yaml")
        run_studies([(study, cells_of(study))], CellStore(Path("studies")))
    return SimpleNamespace(folder=folder)


@pytest.fixture
def ran_study(ran: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder is that of a study that was run, with a candidate that fails."""
    monkeypatch.chdir(ran.folder)
    return ran.folder


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    """A cell that is not done."""
    return cells_of(study_of(tmp_path))[0]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cell, Path]:
    """A cell and its run folder as it is before `finish`: models, a checkpoint, and a failure from before."""
    folder = tmp_path_factory.mktemp("trained")
    cell = cells_of(study_of(folder))[4]
    store = CellStore(folder / "studies")
    assert run_cell(cell, store, keep_models=True) == DONE
    path = store.folder(cell)
    (path / "cell.json").unlink()
    (path / "seed-0" / "checkpoints").mkdir(exist_ok=True)
    (path / "seed-0" / "checkpoints" / "round-1.json").write_text("{}")
    store.fail(cell, "it rained")
    return cell, path


@pytest.fixture
def store(trained: tuple[Cell, Path], tmp_path: Path) -> CellStore:
    """A store with a trained cell."""
    cell, path = trained
    store = CellStore(tmp_path / "studies")
    shutil.copytree(path, store.folder(cell))
    store_cell(store, cell, test=50.0, val=40.0)
    return store


@pytest.fixture
def file(store: CellStore, tmp_path: Path) -> Path:
    """The file of that store's cells."""
    path = tmp_path / "cells.jsonl.gz"
    assert export_cells(store.by_identity().values(), path) == (1, [])
    return path
