"""The progress of a study: reported by `run_cells`, shown by the displays in `fedquilt.cli.study_view`."""

from __future__ import annotations

import math

from fedquilt.studies.cells import Cell


class StudyProgress:
    """Base class of progress displays: counts cells and shows nothing.

    Attributes:
        total, done, failed: numbers of cells. jobs: how many run at a time.
        left: estimated seconds until all are done; NaN before the first cell ends.
        running: by job, the cell that it runs, its finished rounds and all its rounds.
    """

    def __init__(self) -> None:
        self.total, self.done, self.failed, self.jobs = 0, 0, 0, 1
        self.left = math.nan
        self.running: dict[int, tuple[Cell, int, int]] = {}

    def start(self, total: int, done: int, jobs: int) -> None:
        """Begin with `total` cells, of which `done` were done before."""
        self.total, self.done, self.jobs = total, done, jobs

    def begin(self, job: int, cell: Cell) -> None:
        """A job starts a cell."""
        self.running[job] = cell, 0, 0

    def round(self, job: int, done: int, rounds: int) -> None:
        """The cell of a job has finished `done` of its `rounds` rounds."""
        self.running[job] = self.running[job][0], done, rounds

    def end(self, job: int, cell: Cell, outcome: str, seconds: float, left: float) -> None:
        """The cell of a job ended after `seconds`: it is done, failed, or held by another process."""
        self.running.pop(job, None)
        self.left = left
        self.done += outcome == "done"
        self.failed += outcome == "failed"

    def close(self) -> None:
        """All cells have ended."""
