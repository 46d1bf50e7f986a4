"""Run the cells of a study, several at a time, in worker processes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from fedquilt.errors import MachineLimitError
from fedquilt.studies.cell_times import CellTimes
from fedquilt.studies.cells import Cell
from fedquilt.studies.progress import StudyProgress
from fedquilt.studies.run_cell import BROKEN, DONE, FAILED, HELD
from fedquilt.studies.selection import compared_cells, later_cells, later_count
from fedquilt.studies.spec import Study
from fedquilt.studies.store import CellStore
from fedquilt.studies.workers import DIED, LIMIT, ROUND, WorkerPool

_RETRY = 1.0  # seconds until a cell that another process runs is tried again


def run_study(
    study: Study,
    cells: Sequence[Cell],
    store: CellStore,
    jobs: int = 1,
    keep_models: bool = False,
    progress: StudyProgress | None = None,
    threads: int | None = None,
) -> None:
    """Run all candidates on the seeds that choose, then the candidates that validation chose on the others."""
    first, later = compared_cells(study, cells), later_count(study, cells)

    def chosen() -> list[Cell]:
        return later_cells(study, cells, store.by_identity())

    run_cells(first, store, jobs, keep_models, progress, chosen if later else None, later, threads)


def run_cells(
    cells: Sequence[Cell],
    store: CellStore,
    jobs: int = 1,
    keep_models: bool = False,
    progress: StudyProgress | None = None,
    then: Callable[[], Sequence[Cell]] | None = None,
    later: int = 0,
    threads: int | None = None,
) -> None:
    """Run all cells that are not done. On return each is done or has failed, here or in another process.

    A cell that fails is written to the store (`CellStore.failures`) and does not stop the others. A cell that another process
    runs is waited for. When all cells have ended, the cells that `then` returns, about `later` of them, are run. Each process
    has so many `threads`; None: OMP_NUM_THREADS, else its share of the CPUs.
    """
    progress = progress or StudyProgress()
    waiting = _pending(cells, store)
    total = len({cell.key for cell in cells})
    progress.start(total + later, total - len(waiting), jobs)
    workers = WorkerPool(jobs, store.into, keep_models, threads)
    times = CellTimes()
    held_until: dict[str, float] = {}
    try:
        while waiting or workers.busy() or then is not None:
            if not waiting and not workers.busy() and then is not None:
                more = then()
                then, later, waiting = None, 0, _pending(more, store)
                everything = [*cells, *more]
                total = len({cell.key for cell in everything})
                progress.start(total, total - len(_pending(everything, store)), jobs)  # some may have failed
                continue
            while (job := workers.free_job()) is not None and (cell := _next(waiting, held_until)) is not None:
                workers.start_cell(job, cell)
                progress.begin(job, cell)
            if not workers.busy():
                time.sleep(0.1)  # other processes run all cells that are left
                continue
            for worker in workers.with_messages():
                message = worker.receive()
                if message[0] == ROUND:
                    progress.round(worker.job, *message[1:])
                    continue
                cell, seconds = worker.end_cell()
                outcome = message[0]
                if outcome == LIMIT:
                    raise MachineLimitError(f"{message[1]}, so the study stops here.")
                if outcome == DIED:
                    store.fail(cell, f"its process ended with status {message[1]}; it may have run out of memory")
                if outcome in (DIED, BROKEN):
                    workers.discard(worker)
                    outcome = FAILED
                if outcome == HELD:
                    held_until[cell.key] = time.monotonic() + _RETRY
                    waiting.append(cell)
                elif outcome == DONE and cell.key not in held_until:  # else another process ran it
                    times.add(cell, seconds)
                unfinished = [*waiting, *(other.cell for other in workers.busy() if other.cell is not None)]
                left = times.left(unfinished, jobs) + (later * times.mean / jobs if later else 0.0)
                progress.end(worker.job, cell, outcome, seconds, left)
    finally:
        workers.stop()
        progress.close()


def _pending(cells: Sequence[Cell], store: CellStore) -> deque[Cell]:
    """The cells that are not done, each once; the folders of the others are cleaned up."""
    out: deque[Cell] = deque()
    for cell in {cell.key: cell for cell in cells}.values():
        if store.get(cell) is None:
            out.append(cell)
        else:
            store.clean_up(cell)
    return out


def _next(waiting: deque[Cell], held_until: dict[str, float]) -> Cell | None:
    """Remove and return the next cell that no other process was just found to run."""
    now = time.monotonic()
    for _ in range(len(waiting)):
        cell = waiting.popleft()
        if held_until.get(cell.key, 0.0) <= now:
            return cell
        waiting.append(cell)
    return None
