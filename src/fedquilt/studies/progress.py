"""How far a study is: told by `run_cells`, shown by whoever wants to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedquilt.studies.cells import Cell


class StudyProgress:
    """How far a study is; this one shows nothing, and is what shows something is made from.

    Attributes:
        total, done, failed: cells. jobs: how many run at a time.
        left: seconds until all are done; NaN where nobody knows yet.
        running: by job, the cell it runs, the rounds behind it and its rounds.
    """

    def __init__(self) -> None:
        self.total, self.done, self.failed, self.jobs = 0, 0, 0, 1
        self.left = math.nan
        self.running: dict[int, tuple[Cell, int, int]] = {}

    def start(self, total: int, done: int, jobs: int) -> None:
        """So many cells in all, of which so many were done before."""
        self.total, self.done, self.jobs = total, done, jobs

    def begin(self, job: int, cell: Cell) -> None:
        """A job takes a cell up."""
        self.running[job] = cell, 0, 0

    def round(self, job: int, done: int, rounds: int) -> None:
        """The cell of a job has so many rounds behind it."""
        self.running[job] = self.running[job][0], done, rounds

    def end(self, job: int, cell: Cell, outcome: str, seconds: float, left: float) -> None:
        """A job is through with a cell, which is done, failed, or held by another process; see `left`."""
        self.running.pop(job, None)
        self.left = left
        self.done += outcome == "done"
        self.failed += outcome == "failed"

    def close(self) -> None:
        """Nothing comes any more."""
