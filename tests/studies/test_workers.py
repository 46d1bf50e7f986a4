"""Worker processes: started when needed, replaced when they died, ended with their parent."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from fedquilt.studies import workers
from fedquilt.studies.cells import Cell
from fedquilt.studies.store import CellStore
from fedquilt.studies.workers import DIED, ROUND, WorkerPool, WorkerProcess
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
