"""Cells on disk: done or not, held by one process, whole again after any kill."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.runs.compute_version import compute_version
from fedquilt.studies import store as module
from fedquilt.studies import workers
from fedquilt.studies.cells import Cell
from fedquilt.studies.run_cell import DONE, HELD, run_cell
from fedquilt.studies.runner import run_cells
from fedquilt.studies.store import CellStore
from support.tiny_studies import VERSIONS, Inline, cells_of, store_cell, study_of


@pytest.fixture
def store(tmp_path: Path) -> CellStore:
    return CellStore(tmp_path / "studies")


def test_a_cell_is_done_when_it_is_finished(store: CellStore, cell: Cell) -> None:
    assert store.get(cell) is None
    assert store.by_identity() == store.failures() == {}
    store_cell(store, cell, test=50.0, val=None)
    kept = store.get(cell)
    assert kept is not None
    assert kept.measures == {"test": 50.0, "val": None}
    assert kept.facts["identity"] == cell.identity
    assert kept.facts["code"] == compute_version()
    assert store.by_identity() == {cell.identity: kept}


def test_a_failure_is_kept_until_the_cell_is_done(store: CellStore, cell: Cell) -> None:
    store.fail(cell, "it rained")
    assert store.get(cell) is None
    assert store.failures() == {cell.identity: "it rained"}
    store_cell(store, cell, test=50.0)
    assert store.failures() == {}
    assert not (store.folder(cell) / "failed.json").exists()
    store.fail(cell, "noted late, by a process whose worker died")
    assert store.failures() == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "{}", '{"identity": "a"}'])
def test_a_damaged_cell_is_one_sentence(store: CellStore, cell: Cell, text: str) -> None:
    path = store.folder(cell) / "cell.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    for ask in (lambda: store.get(cell), store.by_identity):
        with pytest.raises(FedquiltError) as caught:
            ask()
        assert str(caught.value) == f"{path} is damaged; delete {path.parent} and run the study again."


def test_one_digit_changed_in_a_cell_is_found(store: CellStore, cell: Cell) -> None:
    store_cell(store, cell, test=51.35)
    path = store.folder(cell) / "cell.json"
    text = path.read_text()
    path.write_text(text.replace("51.35", "91.35"))
    for ask in (lambda: store.get(cell), store.by_identity):
        with pytest.raises(FedquiltError, match=r"cell\.json is damaged; delete .* and run the study again"):
            ask()
    facts = json.loads(text)
    del facts["sha256"]  # as earlier versions wrote it
    path.write_text(json.dumps(facts))
    kept = store.get(cell)
    assert kept is not None
    assert kept.measures == {"test": 51.35}


def test_what_a_killed_process_was_making_is_no_cell(store: CellStore, cell: Cell) -> None:
    store_cell(store, cell, test=50.0)
    shutil.copytree(store.folder(cell), store.into / "cells" / f".{cell.key}.77-0123abcd.tmp")
    shutil.rmtree(store.folder(cell))
    assert store.by_identity() == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}"])
def test_a_damaged_failure_is_none(store: CellStore, cell: Cell, text: str) -> None:
    store.folder(cell).mkdir(parents=True)
    (store.folder(cell) / "failed.json").write_text(text)
    assert store.failures() == {}


def test_of_several_the_present_codes_counts_then_the_newest(store: CellStore, cell: Cell) -> None:
    def put(folder: str, code: str, finished: float) -> None:
        facts = {"measures": {"test": finished}, "finished": finished, "device": "CPU", "versions": VERSIONS}
        path = store.into / "cells" / folder / "cell.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"identity": cell.identity, "code": code, **facts}))

    for folder, code, finished, wins in [
        ("m", "old", 5.0, 5.0),
        ("a", "older", 9.0, 9.0),
        ("z", "oldest", 7.0, 9.0),
        ("k", compute_version(), 1.0, 1.0),
        ("b", compute_version(), 3.0, 3.0),
        ("y", compute_version(), 2.0, 3.0),
    ]:
        put(folder, code, finished)
        assert store.by_identity()[cell.identity].measures == {"test": wins}


# -- one process at a time ---------------------------------------------------------------------------

FORK = multiprocessing.get_context("fork")


def try_to_hold(into: Path, cell: Cell, channel: Connection) -> None:
    channel.recv()
    with CellStore(into).lock(cell) as mine:
        channel.send(mine)
        channel.recv()


def test_exactly_one_of_several_processes_holds_a_cell(store: CellStore, cell: Cell) -> None:
    pairs = [FORK.Pipe() for _ in range(4)]
    told = [(store.into, cell, theirs) for _, theirs in pairs]
    processes = [FORK.Process(target=try_to_hold, args=args, daemon=True) for args in told]
    for process in processes:
        process.start()
    for mine, _ in pairs:
        mine.send("now")
    held = [mine.recv() for mine, _ in pairs]
    assert sorted(held) == [False, False, False, True]
    with store.lock(cell) as mine:
        assert not mine
    assert run_cell(cell, store) == HELD
    holder = processes[held.index(True)]
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with store.lock(cell) as mine:  # however it ended
        assert mine
    for mine, _ in pairs:
        if not mine.closed:
            mine.send("end")
    for process in processes:
        process.join()


def test_another_cell_is_free_meanwhile(store: CellStore, cell: Cell, tmp_path: Path) -> None:
    other = cells_of(study_of(tmp_path))[1]
    with store.lock(cell) as first, store.lock(other) as second:
        assert first
        assert second
        with store.lock(cell) as again:
            assert not again


# -- kills while a cell is finished ------------------------------------------------------------------


class Killed(BaseException):
    """As good as a kill: nothing catches it."""


def steps(monkeypatch: pytest.MonkeyPatch, deadly: int) -> Callable[[], int]:
    """Die before the step of that number, of all that change a file or folder in `finish`; how many there were."""
    count = 0

    def counted(whole: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == deadly:
                raise Killed
            return whole(*args, **kwargs)

        return step

    monkeypatch.setattr(module, "write_json", counted(module.write_json))
    monkeypatch.setattr(os, "replace", counted(os.replace))
    monkeypatch.setattr(os, "unlink", counted(os.unlink))
    monkeypatch.setattr(os, "rmdir", counted(os.rmdir))
    monkeypatch.setattr(Path, "unlink", counted(Path.unlink))
    return lambda: count


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.name.endswith(".tmp"))


def finished(monkeypatch: pytest.MonkeyPatch, trained: tuple[Cell, Path], into: Path, deadly: int) -> tuple[bool, int]:
    """Finish the trained cell in `into`: whether it lived, and how many steps it took."""
    cell, path = trained
    store = CellStore(into)
    shutil.copytree(path, store.folder(cell))
    with monkeypatch.context() as patched:
        taken = steps(patched, deadly)
        try:
            run_cell(cell, store)
        except Killed:
            return False, taken()
    return True, taken()


def test_a_kill_between_any_two_steps_of_finishing_is_mended_by_the_next_run(
    trained: tuple[Cell, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, _ = trained
    whole = CellStore(tmp_path / "whole")
    lived, count = finished(monkeypatch, trained, whole.into, deadly=0)
    assert lived
    assert count >= 9  # cell.json, failed.json, a checkpoint and its folder, the models and the server
    expected = whole.get(cell)
    assert expected is not None
    assert not [name for name in listing(expected.folder) if "models" in name or "checkpoints" in name]
    monkeypatch.setattr(workers, "WorkerProcess", Inline)
    for deadly in range(1, count + 1):
        store = CellStore(tmp_path / str(deadly))
        lived, _ = finished(monkeypatch, trained, store.into, deadly)
        assert not lived
        run_cells([cell], store)
        kept = store.get(cell)
        assert kept is not None
        assert listing(kept.folder) == listing(expected.folder), deadly
        assert kept.measures == expected.measures
        assert store.failures() == {}


def test_models_that_were_to_be_kept_stay_when_the_study_is_run_again(
    trained: tuple[Cell, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, path = trained
    store = CellStore(tmp_path)
    shutil.copytree(path, store.folder(cell))
    monkeypatch.setattr(workers, "WorkerProcess", Inline)
    run_cells([cell], store, keep_models=True)
    before = listing(store.folder(cell))
    assert "seed-0/models.safetensors" in before
    run_cells([cell], store)
    assert run_cell(cell, store) == DONE
    assert listing(store.folder(cell)) == before


def test_lighten_leaves_what_a_report_reads(trained: tuple[Cell, Path], tmp_path: Path) -> None:
    cell, path = trained
    store = CellStore(tmp_path)
    shutil.copytree(path, store.folder(cell))
    store.delete_models(cell)
    left = set(listing(store.folder(cell)))
    assert left >= {
        "config.json",
        "result.json",
        "seed-0/metrics.jsonl",
        "seed-0/summary.json",
        "seed-0/similarity.npz",
    }
    assert not [name for name in left if "models" in name or "server" in name or "checkpoints" in name]
    store.delete_models(cell)  # nothing is left to do
