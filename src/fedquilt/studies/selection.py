"""Select the settings of each place of the table: the candidate with the best validation metric on some seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from fedquilt.reports.names import metric_name
from fedquilt.runs.config import RunConfig
from fedquilt.studies.cells import Cell
from fedquilt.studies.spec import Study
from fedquilt.studies.store import StoredCell
from fedquilt.tasks import NODE_CLASSIFICATION
from fedquilt.tasks.base import find_task


def selected_candidates(
    study: Study, cells: Sequence[Cell], stored: Mapping[str, StoredCell]
) -> dict[tuple[str, ...], int]:
    """By place, the candidate with the best mean validation metric over the seeds of `choose_on`, at its place of `choose_at`.

    Only candidates with the most of these seeds done are compared, so that an unfinished study does not choose by luck. The
    first of equals wins. A place where nothing is done is left out.

    Args:
        study: with `choose_on` and `choose_at`. cells: all its cells.
        stored: the finished cells by identity.
    """
    vals: dict[tuple[str, ...], dict[int, list[float]]] = {}
    for cell in cells:
        found = stored.get(cell.identity)
        if found is not None and study.compares(cell.at, cell.seed):
            val = found.measures.get("val")
            score = -math.inf if val is None else val if _higher_is_better(cell.config) else -val
            vals.setdefault(cell.place, {}).setdefault(cell.candidate, []).append(score)
    best = {
        place: max(by, key=lambda candidate: (len(by[candidate]), statistics.fmean(by[candidate]), -candidate))
        for place, by in vals.items()
    }
    deciding = {cell.place: tuple(study.chosen_at(cell.at).values()) for cell in cells}
    return {place: best[other] for place, other in deciding.items() if other in best}


def compared_cells(study: Study, cells: Sequence[Cell]) -> list[Cell]:
    """The cells that are run for all candidates, to choose among them."""
    return [cell for cell in cells if study.compares(cell.at, cell.seed)]


def later_cells(study: Study, cells: Sequence[Cell], stored: Mapping[str, StoredCell]) -> list[Cell]:
    """The cells of the selected candidates that were not part of the comparison."""
    return [cell for cell in selected_cells(study, cells, stored) if not study.compares(cell.at, cell.seed)]


def later_count(study: Study, cells: Sequence[Cell]) -> int:
    """How many cells are run after all candidates were compared."""
    return len({(cell.place, cell.seed) for cell in cells if not study.compares(cell.at, cell.seed)})


def selected_cells(study: Study, cells: Sequence[Cell], stored: Mapping[str, StoredCell]) -> list[Cell]:
    """The cells of the selected candidates, with all seeds."""
    selected = selected_candidates(study, cells, stored)
    return [cell for cell in cells if selected.get(cell.place) == cell.candidate]


def _higher_is_better(config: RunConfig) -> bool:
    """The direction of a run's metric; that of the dataset or of the task where it names none."""
    if config.metric is not None:
        return metric_name(config.metric).higher_is_better
    if config.task == NODE_CLASSIFICATION:
        return True
    return next(iter(find_task(config.task).metrics.values())).higher_is_better
