"""What a user sees while a study runs: a live table on a terminal, a line a cell elsewhere."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING

from fedquilt.cli.console import aside
from fedquilt.cli.progress import duration
from fedquilt.studies.progress import StudyProgress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedquilt.studies.cells import Cell

_REFRESHES = 4
_EVERY = 2.0  # seconds between plain lines, at least


def sentence(standing: StudyProgress) -> str:
    """Such as `12 of 396 cells done, 1 failed, 8 min left`."""
    parts = [f"{standing.done} of {standing.total} cells done"]
    if standing.failed:
        parts.append(f"{standing.failed} failed")
    if standing.done + standing.failed < standing.total:
        left = standing.left
        parts.append("time left not known yet" if math.isnan(left) else f"{duration(left)} left")
    return ", ".join(parts)


class Lines(StudyProgress):
    """Plain lines on stderr: what was done before, what came of a cell every few seconds, every failure, the end."""

    def __init__(self) -> None:
        super().__init__()
        self._last = 0.0

    def start(self, total: int, done: int, jobs: int) -> None:
        """How much there is to do."""
        super().start(total, done, jobs)
        aside(sentence(self))

    def end(self, job: int, cell: Cell, outcome: str, seconds: float, left: float) -> None:
        """A line, if the last is long enough ago or the cell failed."""
        super().end(job, cell, outcome, seconds, left)
        over = self.done + self.failed == self.total
        if outcome == "failed" or over or time.monotonic() - self._last >= _EVERY:
            self._last = time.monotonic()
            aside(f"{cell.label}: {outcome} in {duration(seconds)}; {sentence(self)}")


class Live(StudyProgress):
    """A bar for the study and a line for each cell that runs, on stderr."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live as RichLive

        self._began = time.monotonic()
        self._live = RichLive(
            get_renderable=self._drawn, console=Console(file=sys.stderr), refresh_per_second=_REFRESHES
        )
        self._live.start()

    def close(self) -> None:
        """Leave the last state standing."""
        self._live.stop()

    def _drawn(self) -> RenderableType:
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


def view(quiet: bool) -> StudyProgress:
    """What shows a study's progress here."""
    if quiet:
        return StudyProgress()
    return Live() if sys.stderr.isatty() else Lines()
