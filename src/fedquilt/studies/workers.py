"""Worker processes that run the cells of a study, one after the other, and report over a pipe."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fedquilt.common.machine_limits import find_limit
from fedquilt.devices.peak_memory import release_memory
from fedquilt.devices.threads import threads_for
from fedquilt.studies.cells import Cell
from fedquilt.studies.run_cell import run_cell
from fedquilt.studies.store import CellStore

ROUND = "round"  # a message: (ROUND, finished rounds, all rounds); any other is (outcome,)
LIMIT = (
    "limit"  # the outcome where the machine's disk is full or so, which all cells would meet: (LIMIT, what happened)
)
_PATIENCE = 5.0  # seconds that workers have to end by themselves
DIED = "died"  # the outcome where the process ended: (DIED, exit status)


class WorkerPool:
    """Up to `jobs` worker processes, started when they are first needed, each with so many threads (see `threads_for`)."""

    def __init__(self, jobs: int, into: Path, keep_models: bool, threads: int | None = None) -> None:
        self._workers: dict[int, WorkerProcess] = {}
        self._jobs = jobs
        self._arguments = into, keep_models, threads or threads_for(jobs)

    def free_job(self) -> int | None:
        """The first job that runs no cell."""
        free = (job for job in range(self._jobs) if job not in self._workers or self._workers[job].cell is None)
        return next(free, None)

    def start_cell(self, job: int, cell: Cell) -> None:
        """Have a job run a cell."""
        if job in self._workers and not self._workers[job].alive():  # it was killed between two cells
            self.discard(self._workers[job])
        if job not in self._workers:
            self._workers[job] = WorkerProcess(job, *self._arguments)
        self._workers[job].start_cell(cell)

    def busy(self) -> list[WorkerProcess]:
        """The workers that run a cell."""
        return [worker for worker in self._workers.values() if worker.cell is not None]

    def with_messages(self) -> list[WorkerProcess]:
        """The workers whose next message can be received; waits up to a second for one."""
        by_channel = {worker.channel: worker for worker in self.busy()}
        return [by_channel[channel] for channel in wait(list(by_channel), timeout=1.0)]  # type: ignore[index]

    def discard(self, worker: WorkerProcess) -> None:
        """Stop a worker; its job starts a new one when it is needed."""
        self._workers.pop(worker.job).stop()

    def stop(self) -> None:
        """Stop all workers, at the same time: none waits for another."""
        for worker in self._workers.values():
            worker.ask_to_stop()
        until = time.monotonic() + _PATIENCE
        for worker in self._workers.values():
            worker.wait_for_end(until - time.monotonic())


class WorkerProcess:
    """The parent's end of one worker process."""

    cell: Cell | None

    def __init__(self, job: int, into: Path, keep_models: bool, threads: int) -> None:
        self.job, self.cell, self.since = job, None, 0.0
        context = multiprocessing.get_context("spawn")
        self.channel, child = context.Pipe()
        self.process = context.Process(target=_work_and_exit, args=(child, into, keep_models, threads), daemon=True)
        self.process.start()
        child.close()  # so that this end is told when the process ends

    def start_cell(self, cell: Cell) -> None:
        """Have the process run a cell."""
        self.cell, self.since = cell, time.monotonic()
        with suppress(OSError):  # if it just died, `receive` returns that
            self.channel.send(cell)

    def alive(self) -> bool:
        """Whether the process is running."""
        return self.process.is_alive()

    def receive(self) -> tuple[Any, ...]:
        """The next message; `(DIED, exit status)` where the process has ended."""
        try:
            return tuple(self.channel.recv())
        except (EOFError, OSError):
            self.process.join()
            return DIED, self.process.exitcode

    def end_cell(self) -> tuple[Cell, float]:
        """Take the finished cell off the worker: the cell, and how many seconds it took."""
        cell, self.cell = self.cell, None
        assert cell is not None
        return cell, time.monotonic() - self.since

    def stop(self) -> None:
        """End the process. A cell that it runs is resumed from its last checkpoint another time."""
        self.ask_to_stop()
        self.wait_for_end(_PATIENCE)

    def ask_to_stop(self) -> None:
        """Have the process end."""
        self.channel.close()
        if self.cell is not None:
            self.process.terminate()

    def wait_for_end(self, seconds: float) -> None:
        """Wait so long until the process has ended, then kill it: nothing of it is needed any more."""
        self.process.join(max(0.0, seconds))
        if self.process.is_alive():
            self.process.kill()
            self.process.join(_PATIENCE)


def _work_and_exit(channel: Connection, into: Path, keep_models: bool, threads: int) -> None:
    """The main function of a worker process. All is written when a cell is done, so that nothing is left to clean up."""
    _run_worker(channel, into, keep_models, threads)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # libraries of accelerators take seconds to end, and wait for each other


def _run_worker(channel: Connection, into: Path, keep_models: bool, threads: int) -> None:
    """Run cells until the parent closes the pipe."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    torch.set_num_threads(threads)
    store = CellStore(into)

    def on_round(done: int, rounds: int) -> None:
        _send(channel, (ROUND, done, rounds))

    while True:
        try:
            cell = channel.recv()
        except (EOFError, OSError):
            return
        try:
            outcome: tuple[Any, ...] = (run_cell(cell, store, keep_models, on_round),)
        except Exception as error:
            limit = find_limit(error)
            if limit is None:
                raise
            outcome = (LIMIT, limit.what)
        release_memory()
        _send(channel, outcome)


def _send(channel: Connection, message: tuple[Any, ...]) -> None:
    try:
        channel.send(message)
    except OSError:
        raise SystemExit from None  # the parent is gone; the cell is resumed another time
