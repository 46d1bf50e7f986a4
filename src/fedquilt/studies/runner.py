"""Run the cells of a study, several at a time, in worker processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch

from fedquilt.devices.device import pick_device
from fedquilt.errors import MachineLimitError
from fedquilt.studies.cell_memory import MemoryBudget, Need
from fedquilt.studies.cell_times import CellTimes
from fedquilt.studies.cells import Cell
from fedquilt.studies.progress import StudyProgress
from fedquilt.studies.run_cell import BROKEN, DONE, FAILED, FULL, HELD, device_name
from fedquilt.studies.selection import compared_cells, later_cells, later_count
from fedquilt.studies.spec import Study
from fedquilt.studies.store import CellStore
from fedquilt.studies.workers import DIED, LIMIT, ROUND, WorkerPool

QUEUED = "queued"  # the outcome of a cell that is tried once more
_RETRY = 1.0  # seconds until a cell that another process runs is tried again


def run_studies(
    planned: Sequence[tuple[Study, Sequence[Cell]]],
    store: CellStore,
    jobs: int = 1,
    keep_models: bool = False,
    progress: StudyProgress | None = None,
    threads: int | None = None,
    wanted: Callable[[Cell], bool] = lambda cell: True,
    until: float = math.inf,
) -> None:
    """Run all candidates on the seeds that choose, then the candidates that validation chose on the others.

    The cells of several studies are run as those of one, so that no job waits for the last cell of each study. Only cells that
    are `wanted` are run; the choice is made among all that are done. None is started after `until`, a time of `time.monotonic`.
    """
    first = [cell for study, cells in planned for cell in compared_cells(study, cells) if wanted(cell)]
    later = sum(later_count(study, [cell for cell in cells if wanted(cell)]) for study, cells in planned)

    def chosen() -> list[Cell]:
        stored = store.by_identity()
        return [cell for study, cells in planned for cell in later_cells(study, cells, stored) if wanted(cell)]

    run_cells(first, store, jobs, keep_models, progress, chosen if later else None, later, threads, until)


def run_cells(
    cells: Sequence[Cell],
    store: CellStore,
    jobs: int = 1,
    keep_models: bool = False,
    progress: StudyProgress | None = None,
    then: Callable[[], Sequence[Cell]] | None = None,
    later: int = 0,
    threads: int | None = None,
    until: float = math.inf,
) -> None:
    """Run all cells that are not done. On return each is done or has failed, here or in another process.

    A cell that fails is written to the store (`CellStore.failures`) and does not stop the others. A cell that another process
    runs is waited for. When all cells have ended, the cells that `then` returns, about `later` of them, are run. Each process
    has so many `threads`; None: OMP_NUM_THREADS, else its share of the CPUs. None is started after `until`.
    """
    progress = progress or StudyProgress()
    times, budget = _knowledge(cells, store, jobs)
    waiting = _pending(cells, store, times)
    total = len({cell.key for cell in cells})
    progress.left = times.left(waiting, jobs, later)
    progress.start(total + later, total - len(waiting), jobs)
    workers = WorkerPool(jobs, store.into, keep_models, threads)
    held_until: dict[str, float] = {}
    try:
        while waiting or workers.busy() or then is not None:
            if time.monotonic() > until:
                waiting, then = [], None
                if not workers.busy():
                    break
            if not waiting and not workers.busy() and then is not None:
                more = then()
                then, later, waiting = None, 0, _pending(more, store, times)
                everything = [*cells, *more]
                total = len({cell.key for cell in everything})
                progress.start(total, total - len(_pending(everything, store, times)), jobs)  # some may have failed
                continue
            while (job := workers.free_job()) is not None:
                running = [worker.cell for worker in workers.busy() if worker.cell is not None]
                held = {key for key, until in held_until.items() if until > time.monotonic()}
                cell = _next(waiting, held, running, budget)
                if cell is None:
                    break
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
                if outcome in (DIED, BROKEN, FULL):
                    workers.discard(worker)
                    # What ran out of memory beside others is tried once more, with nothing beside it.
                    again = outcome != BROKEN and cell.key not in budget.alone and bool(workers.busy())
                    outcome = QUEUED if again else FAILED
                if outcome == QUEUED:
                    budget.alone.add(cell.key)
                    waiting.append(cell)
                elif outcome == HELD:
                    held_until[cell.key] = time.monotonic() + _RETRY
                    waiting.append(cell)
                elif outcome == DONE and cell.key not in held_until:  # else another process ran it
                    times.add(cell, seconds)
                unfinished = [*waiting, *(other.cell for other in workers.busy() if other.cell is not None)]
                left = times.left(unfinished, jobs, later)
                progress.end(worker.job, cell, outcome, seconds, left)
    finally:
        workers.stop()
        progress.close()


def _knowledge(cells: Sequence[Cell], store: CellStore, jobs: int) -> tuple[CellTimes, MemoryBudget]:
    """What the store's finished cells say about the time and the memory that these cells take here."""
    if not cells:
        return CellTimes(), MemoryBudget(torch.device("cpu"), jobs, Need(math.inf))
    stored, device = store.by_identity().values(), cells[0].config.device
    times = CellTimes.of_store(stored, device_name(device), {cell.config.dataset for cell in cells})
    if jobs == 1:  # nothing runs beside anything
        return times, MemoryBudget(torch.device("cpu"), jobs, Need(math.inf))
    return times, MemoryBudget.here(pick_device(device), jobs, stored)


def _pending(cells: Sequence[Cell], store: CellStore, times: CellTimes) -> list[Cell]:
    """The cells that are not done, each once, the longest of a seed first, so that no job is left with a long one at the end.

    The folders of the others are cleaned up.
    """
    out: list[Cell] = []
    for cell in {cell.key: cell for cell in cells}.values():
        if store.get(cell) is None:
            out.append(cell)
        else:
            store.clean_up(cell)
    return sorted(out, key=lambda cell: (cell.seed, -round(times.length(cell), 1)))


def _next(waiting: list[Cell], held: set[str], running: Sequence[Cell], budget: MemoryBudget) -> Cell | None:
    """Remove and return the first cell that no other process was just found to run, and that fits beside those that run."""
    for place, cell in enumerate(waiting):
        if not (held and cell.key in held) and budget.fits(cell, running):
            return waiting.pop(place)
    return None
