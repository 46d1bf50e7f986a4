"""Many cells, some at a time: each in a worker process of its own, so that one that dies takes nothing along."""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fedquilt.studies.cells import Cell
from fedquilt.studies.progress import StudyProgress
from fedquilt.studies.run_cell import BROKEN, DONE, FAILED, HELD, carry_out
from fedquilt.studies.selection import counting
from fedquilt.studies.spec import Study
from fedquilt.studies.store import CellStore

_ROUND = "round"
_AGAIN = 1.0  # seconds until a cell that another process holds is looked at again


@dataclass
class Pace:
    """How long cells take, to say how long the rest will: by method and graph, as they differ most in these."""

    spent: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, cell: Cell, seconds: float) -> None:
        """A cell took so long."""
        self.spent.setdefault(_like(cell), []).append(seconds)

    def left(self, cells: Sequence[Cell], jobs: int) -> float:
        """Seconds for these cells; NaN before the first is done."""
        means = {kind: sum(some) / len(some) for kind, some in self.spent.items()}
        return sum(means.get(_like(cell), self.usual) for cell in cells) / jobs

    @property
    def usual(self) -> float:
        """Seconds for any cell; NaN before the first is done."""
        everything = [seconds for some in self.spent.values() for seconds in some]
        return sum(everything) / len(everything) if everything else math.nan


def run_study(
    study: Study,
    cells: Sequence[Cell],
    keeping: CellStore,
    jobs: int = 1,
    keep_models: bool = False,
    view: StudyProgress | None = None,
) -> None:
    """Run all cells of a study that count: candidates on the first seeds, on the others what validation chose there."""
    first = [cell for cell in cells if cell.seed < study.choose_on]
    later = {(tuple(cell.at.values()), cell.seed) for cell in cells if cell.seed >= study.choose_on}

    def chosen() -> list[Cell]:
        return [cell for cell in counting(study, cells, keeping.by_identity()) if cell.seed >= study.choose_on]

    run_cells(first, keeping, jobs, keep_models, view, chosen if later else None, len(later))


def run_cells(
    cells: Sequence[Cell],
    keeping: CellStore,
    jobs: int = 1,
    keep_models: bool = False,
    view: StudyProgress | None = None,
    then: Callable[[], Sequence[Cell]] | None = None,
    later: int = 0,
) -> None:
    """Run all cells that are not done; when it returns, each is done or has failed, here or in another process.

    A cell that fails is noted (`CellStore.failures`) and does not stop the rest. A cell of another process is waited for.
    What `then` gives, about `later` cells, is run when all others are through.
    """
    view = view or StudyProgress()
    waiting = _undone(cells, keeping)
    total = len({cell.key for cell in cells})
    view.start(total + later, total - len(waiting), jobs)
    workers = _Workers(jobs, keeping.into, keep_models)
    pace = Pace()
    held_until: dict[str, float] = {}
    try:
        while waiting or workers.busy() or then is not None:
            if not waiting and not workers.busy() and then is not None:
                more = then()
                then, later, waiting = None, 0, _undone(more, keeping)
                everything = [*cells, *more]
                total = len({cell.key for cell in everything})
                view.start(total, total - len(_undone(everything, keeping)), jobs)  # some may have failed
                continue
            while (job := workers.free()) is not None and (cell := _next(waiting, held_until)) is not None:
                workers.take(job, cell)
                view.begin(job, cell)
            if not workers.busy():
                time.sleep(0.1)  # another process holds all that is left
                continue
            for worker in workers.heard():
                message = worker.hear()
                if message[0] == _ROUND:
                    view.round(worker.job, *message[1:])
                    continue
                cell, seconds = worker.leave()
                outcome = message[0]
                if outcome == _Worker.DIED:
                    keeping.fail(cell, f"its process ended with status {message[1]}; it may have run out of memory")
                if outcome in (_Worker.DIED, BROKEN):
                    workers.replace(worker)
                    outcome = FAILED
                if outcome == HELD:
                    held_until[cell.key] = time.monotonic() + _AGAIN
                    waiting.append(cell)
                elif outcome == DONE and cell.key not in held_until:  # else another process did it
                    pace.add(cell, seconds)
                left = [*waiting, *(other.cell for other in workers.busy() if other.cell is not None)]
                more_time = later * pace.usual / jobs if later else 0.0
                view.end(worker.job, cell, outcome, seconds, pace.left(left, jobs) + more_time)
    finally:
        workers.stop()
        view.close()


def _undone(cells: Sequence[Cell], keeping: CellStore) -> deque[Cell]:
    """Those that are not done, each once; what a kill left to do of the others is done here."""
    out: deque[Cell] = deque()
    for cell in {cell.key: cell for cell in cells}.values():
        if keeping.done(cell) is None:
            out.append(cell)
        else:
            keeping.tidy(cell)
    return out


def _next(waiting: deque[Cell], held_until: dict[str, float]) -> Cell | None:
    """The next cell that nobody else was seen to hold just now."""
    now = time.monotonic()
    for _ in range(len(waiting)):
        cell = waiting.popleft()
        if held_until.get(cell.key, 0.0) <= now:
            return cell
        waiting.append(cell)
    return None


def _like(cell: Cell) -> tuple[str, str]:
    return cell.config.method, cell.config.dataset


class _Workers:
    """Up to `jobs` worker processes, started when they are first needed."""

    def __init__(self, jobs: int, into: Path, keep_models: bool) -> None:
        self._all: dict[int, _Worker] = {}
        self._jobs, self._told = jobs, (into, keep_models, max(1, (os.cpu_count() or 1) // jobs))

    def free(self) -> int | None:
        """A job that has nothing to do."""
        idle = (job for job in range(self._jobs) if job not in self._all or self._all[job].cell is None)
        return next(idle, None)

    def take(self, job: int, cell: Cell) -> None:
        """Have a job run a cell."""
        if job in self._all and not self._all[job].alive():  # it was killed while it had nothing to do
            self.replace(self._all[job])
        if job not in self._all:
            self._all[job] = _Worker(job, *self._told)
        self._all[job].take(cell)

    def busy(self) -> list[_Worker]:
        """Those that run a cell."""
        return [worker for worker in self._all.values() if worker.cell is not None]

    def heard(self) -> list[_Worker]:
        """Those that have something to say; waits a second for one."""
        by_channel = {worker.channel: worker for worker in self.busy()}
        return [by_channel[channel] for channel in wait(list(by_channel), timeout=1.0)]  # type: ignore[index]

    def replace(self, worker: _Worker) -> None:
        """End one; its job gets a new one when it is needed."""
        self._all.pop(worker.job).stop()

    def stop(self) -> None:
        """End all of them."""
        for worker in self._all.values():
            worker.stop()


class _Worker:
    """A process that runs one cell after the other, as seen from here."""

    DIED = "died"

    def __init__(self, job: int, into: Path, keep_models: bool, threads: int) -> None:
        self.job, self.cell, self.since = job, None, 0.0
        context = multiprocessing.get_context("spawn")
        self.channel, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, into, keep_models, threads), daemon=True)
        self.process.start()
        theirs.close()  # so that this end hears when the process is gone

    cell: Cell | None

    def take(self, cell: Cell) -> None:
        """Have it run a cell."""
        self.cell, self.since = cell, time.monotonic()
        with suppress(OSError):  # if it just died, `hear` says so
            self.channel.send(cell)

    def alive(self) -> bool:
        """Whether its process is there."""
        return self.process.is_alive()

    def hear(self) -> tuple[Any, ...]:
        """What it says next; that it died, where it does not say anything any more."""
        try:
            return tuple(self.channel.recv())
        except (EOFError, OSError):
            self.process.join()
            return self.DIED, self.process.exitcode

    def leave(self) -> tuple[Cell, float]:
        """The cell that it is through with, and how long that took."""
        cell, self.cell = self.cell, None
        assert cell is not None
        return cell, time.monotonic() - self.since

    def stop(self) -> None:
        """End it; a cell that it was running goes on from its last checkpoint another time."""
        self.channel.close()
        if self.cell is not None:
            self.process.terminate()
        self.process.join(5.0)


def _work(channel: Connection, into: Path, keep_models: bool, threads: int) -> None:
    """What a worker does until nobody is at the other end any more."""
    import signal

    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    torch.set_num_threads(threads)
    keeping = CellStore(into)

    def on_round(done: int, rounds: int) -> None:
        _say(channel, (_ROUND, done, rounds))

    while True:
        try:
            cell = channel.recv()
        except (EOFError, OSError):
            return
        _say(channel, (carry_out(cell, keeping, keep_models, on_round),))


def _say(channel: Connection, message: tuple[Any, ...]) -> None:
    try:
        channel.send(message)
    except OSError:
        raise SystemExit from None  # the process that started this one is gone; the cell is resumed another time
