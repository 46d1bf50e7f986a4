"""Which settings count at a place of the table: those that do best on validation, over the first seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from fedquilt.studies.cells import Cell
from fedquilt.studies.spec import Study
from fedquilt.studies.store import StoredCell

Place = tuple[str, ...]


def chosen(study: Study, cells: Sequence[Cell], found: Mapping[str, StoredCell]) -> dict[Place, int]:
    """By place, the candidate with the best mean validation metric over the first `choose_on` seeds.

    Of those with most of these seeds done, so that an unfinished study does not choose by luck; the first of equals. A place of
    which nothing is done has none.
    """
    vals: dict[Place, dict[int, list[float]]] = {}
    for cell in cells:
        kept = found.get(cell.identity)
        if kept is not None and cell.seed < study.choose_on:
            val = kept.measures.get("val")
            vals.setdefault(place(cell), {}).setdefault(cell.candidate, []).append(-math.inf if val is None else val)
    return {
        at: max(candidates, key=lambda number: (len(candidates[number]), statistics.fmean(candidates[number]), -number))
        for at, candidates in vals.items()
    }


def counting(study: Study, cells: Sequence[Cell], found: Mapping[str, StoredCell]) -> list[Cell]:
    """The cells of the candidates that were chosen, with all seeds."""
    choice = chosen(study, cells, found)
    return [cell for cell in cells if choice.get(place(cell)) == cell.candidate]


def place(cell: Cell) -> Place:
    """Where a cell stands, to look it up by."""
    return tuple(cell.at.values())
