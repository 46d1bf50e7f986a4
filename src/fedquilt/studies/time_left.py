"""A sentence about how long the rest of a study takes on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedquilt.common.console import duration
from fedquilt.studies.cell_times import CellTimes, measured_unit
from fedquilt.studies.cells import Cell
from fedquilt.studies.run_cell import device_name
from fedquilt.studies.selection import compared_cells, later_cells
from fedquilt.studies.spec import Study
from fedquilt.studies.store import StoredCell


def time_left(study: Study, cells: Sequence[Cell], stored: Mapping[str, StoredCell], jobs: int = 1) -> str:
    """How long the cells that are not done or stale take here, and how that is known.

    On the seeds that run after the choice of settings, places without a choice so far count with their first candidate.
    """
    later = later_cells(study, cells, stored)
    chosen = {(cell.place, cell.seed) for cell in later}
    open_ones = [
        cell
        for cell in cells
        if not study.compares(cell.at, cell.seed) and cell.candidate == 0 and (cell.place, cell.seed) not in chosen
    ]
    everything = {cell.key: cell for cell in (*compared_cells(study, cells), *later, *open_ones)}
    rest = [cell for cell in everything.values() if not _is_done(cell, stored)]
    if not rest:
        return "All cells are done."
    device = rest[0].config.device
    times = CellTimes.of_store(stored.values(), device_name(device), {cell.config.dataset for cell in cells})
    known = sum(map(len, times.seconds.values()))
    if not known:
        times.unit = measured_unit(device)
    whence = f"from {known} finished cells" if known else "from a short measurement; it may be wrong by a factor"
    at_once = "one at a time" if jobs == 1 or study.alone else f"{jobs} at a time"
    left = duration(times.left(rest, 1 if study.alone else jobs))
    return f"The {len(rest)} cells that are left take about {left} on this machine, {at_once} ({whence})."


def _is_done(cell: Cell, stored: Mapping[str, StoredCell]) -> bool:
    found = stored.get(cell.identity)
    return found is not None and not found.stale
