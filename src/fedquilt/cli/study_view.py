"""Progress displays of a study: a live table on a terminal, else lines."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING

from fedquilt.cli import console
from fedquilt.cli.console import aside
from fedquilt.common.console import duration
from fedquilt.studies.cells import Cell
from fedquilt.studies.progress import StudyProgress

if TYPE_CHECKING:
    from rich.console import RenderableType

_REFRESHES = 4  # refreshes of the live table per second
_EVERY = 2.0  # the least number of seconds between two lines


def sentence(progress: StudyProgress) -> str:
    """Describe the progress, such as `12 of 396 cells done, 1 failed, 8 min left`."""
    parts = [f"{progress.done} of {progress.total} cells done"]
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    if progress.done + progress.failed < progress.total:
        left = progress.left
        parts.append("time left not known yet" if math.isnan(left) else f"{duration(left)} left")
    return ", ".join(parts)


class ProgressLines(StudyProgress):
    """Lines on stderr: one at the start, one for a finished cell every few seconds, one for each failure and at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._last = 0.0

    def start(self, total: int, done: int, jobs: int) -> None:
        """Print how many cells there are and how many are done."""
        super().start(total, done, jobs)
        aside(sentence(self))

    def end(self, job: int, cell: Cell, outcome: str, seconds: float, left: float) -> None:
        """Print a line if the cell failed, was the last one, or the last line was printed at least `_EVERY` seconds ago."""
        super().end(job, cell, outcome, seconds, left)
        over = self.done + self.failed == self.total
        if outcome == "failed" or over or time.monotonic() - self._last >= _EVERY:
            self._last = time.monotonic()
            aside(f"{cell.label}: {outcome} in {duration(seconds)}; {sentence(self)}")


class LiveProgress(StudyProgress):
    """A bar for the study and a line for each running cell, on stderr."""

    def __init__(self) -> None:
        super().__init__()
        from rich.live import Live

        self._began = time.monotonic()
        self._live = Live(get_renderable=self._render, console=console.progress(), refresh_per_second=_REFRESHES)
        self._live.start()

    def close(self) -> None:
        """Stop refreshing; the last state stays on the screen."""
        self._live.stop()

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Table.grid(padding=(0, 1))
        spent = duration(time.monotonic() - self._began)
        head.add_row(
            ProgressBar(total=max(1, self.total), completed=self.done + self.failed, width=30),
            Text(f"{sentence(self)} ({spent} so far)", "red" if self.failed else ""),
        )
        rows = Table.grid(padding=(0, 1))
        for _, (cell, done, rounds) in sorted(self.running.items()):
            rows.add_row(
                ProgressBar(total=max(1, rounds), completed=done, width=12, style="dim"),
                Text(f"{done}/{rounds}" if rounds else "...", "dim"),
                Text(cell.label),
            )
        return Group(head, rows)


def progress_display(quiet: bool) -> StudyProgress:
    """Return the live display if stderr is a terminal, else lines; when quiet, a display that shows nothing."""
    if quiet:
        return StudyProgress()
    return LiveProgress() if sys.stderr.isatty() else ProgressLines()
