"""Worker processes: started when needed, replaced when they died, ended with their parent."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import threading
from pathlib import Path

import pytest
import torch

from fedquilt.studies import run_cell, workers
from fedquilt.studies.cells import Cell
from fedquilt.studies.store import CellStore
from fedquilt.studies.workers import DIED, LIMIT, ROUND, WorkerPool, WorkerProcess
from support.tiny_studies import Inline, scripted


def test_a_process_reports_its_rounds_and_its_outcome_and_the_cell_is_stored(cell: Cell, tmp_path: Path) -> None:
    worker = WorkerProcess(0, tmp_path, keep_models=False, threads=1)
    worker.start_cell(cell)
    messages = [worker.receive() for _ in range(4)]
    assert messages == [(ROUND, 1, 3), (ROUND, 2, 3), (ROUND, 3, 3), ("done",)]
    ended, seconds = worker.end_cell()
    assert ended == cell
    assert seconds > 0
    assert CellStore(tmp_path).get(cell) is not None
    assert worker.alive()
    assert worker.process.pid is not None
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.process.join()
    worker.start_cell(cell)
    assert worker.receive() == (DIED, -signal.SIGKILL)
    worker.stop()
    assert not worker.alive()


def test_a_pool_starts_as_many_workers_as_are_needed(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Inline] = []

    class Counted(scripted(lambda cell, store: [("done",)])):  # type: ignore[misc]
        def __init__(self, *args: object) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(workers, "WorkerProcess", Counted)
    pool = WorkerPool(2, tmp_path, keep_models=False)
    assert (pool.free_job(), pool.busy(), made) == (0, [], [])
    pool.start_cell(0, cell)
    assert (pool.free_job(), pool.busy(), len(made)) == (1, made, 1)
    pool.start_cell(1, cell)
    assert pool.free_job() is None
    assert set(pool.with_messages()) == set(made)
    assert made[1].receive() == ("done",)
    made[1].end_cell()
    assert pool.free_job() == 1
    pool.discard(made[1])
    pool.start_cell(1, cell)
    assert len(made) == 3
    pool.stop()


def test_a_limit_that_every_cell_would_meet_is_reported_and_others_end_the_cell(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = multiprocessing.Pipe()
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    failing = {"error": OSError(errno.ENOSPC, "", "x")}

    def fail(*_: object) -> None:
        raise failing["error"]

    monkeypatch.setattr(run_cell, "_measures", fail)
    ours.send(cell)
    ours.send(cell)
    with ours:
        worker = threading.Thread(target=workers._run_worker, args=(theirs, tmp_path, False, torch.get_num_threads()))
        worker.start()
        told = [ours.recv(), ours.recv()]
    worker.join()
    assert [outcome for outcome, _ in told] == [LIMIT, LIMIT]
    assert "No space left on device" in told[0][1]
    assert CellStore(tmp_path).failures() == {}
    failing["error"] = MemoryError()
    assert run_cell.run_cell(cell, CellStore(tmp_path)) == run_cell.FULL
    assert "Memory ran out" in CellStore(tmp_path).failures()[cell.identity]


def test_workers_have_the_threads_that_the_environment_asks_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert workers.WorkerPool(2, tmp_path, False)._arguments[-1] == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr("fedquilt.devices.threads.available_cpus", lambda: 8)
    assert workers.WorkerPool(2, tmp_path, False)._arguments[-1] == 4
    assert workers.WorkerPool(2, tmp_path, False, threads=5)._arguments[-1] == 5


def test_workers_end_together_and_one_that_does_not_is_killed(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_PATIENCE", 0.2)
    did: list[tuple[int, str]] = []

    class Stubborn(scripted(lambda cell, store: [("done",)])):  # type: ignore[misc]
        def __init__(self, job: int, *args: object) -> None:
            super().__init__(job, *args)
            for name in ("join", "kill", "terminate"):
                setattr(self.process, name, lambda *_, name=name: did.append((job, name)))

    monkeypatch.setattr(workers, "WorkerProcess", Stubborn)
    pool = WorkerPool(2, tmp_path, keep_models=False)
    for job in (0, 1):
        pool.start_cell(job, cell)
    pool.stop()
    assert did[:2] == [(0, "terminate"), (1, "terminate")]  # before anyone is waited for
    assert did[2:] == [(job, what) for job in (0, 1) for what in ("join", "kill", "join")]
