"""Progress of a training: live bars on a terminal and in a notebook, a few plain lines in a file or a pipe, or nothing."""

from __future__ import annotations

import html
import importlib
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fedquilt.common import console
from fedquilt.common.console import aside, duration, number
from fedquilt.runs.callbacks import Callback, Watcher, callbacks_of
from fedquilt.runs.config import RunConfig

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_LINES = 10  # lines per seed if stderr is not a terminal
_REFRESHES = 4  # refreshes per second; drawing a bar takes milliseconds, as long as a small round


@dataclass
class SeedProgress:
    """The progress of one seed of a run: rounds done, metrics, and seconds per round (`pace`)."""

    method: str
    seed: int
    seeds_after: int
    rounds: int
    done: int = 0
    val: float = math.nan
    higher_is_better: bool = True
    best: float = math.nan
    best_round: int = -1
    pace: float = math.nan
    epsilon: float = math.nan  # privacy budget spent so far; NaN where uploads are not protected

    def add(self, record: dict[str, Any]) -> None:
        """Add a round's record; with a round that was done before, training began again from there."""
        if record["round"] < self.done:
            self.best, self.best_round = math.nan, -1
        self.done = record["round"] + 1
        seconds = record["seconds"]
        # A moving average, because the first rounds are slower. Rounds restored by a resume count with their recorded seconds.
        self.pace = seconds if math.isnan(self.pace) else 0.9 * self.pace + 0.1 * seconds
        self.epsilon = record.get("epsilon", math.nan)
        val = record.get("val")
        if val is not None:
            self.val = val
            better = val > self.best if self.higher_is_better else val < self.best
            if better or math.isnan(self.best):
                self.best, self.best_round = val, record["round"]

    @property
    def left(self) -> float:
        """Estimate the seconds until the run's last seed is done; NaN before the first round."""
        return self.pace * (self.rounds - self.done + self.seeds_after * self.rounds)


class ProgressDisplay(Protocol):
    """Shows the progress of seeds."""

    def start(self, progress: SeedProgress) -> None:
        """Called when a seed starts."""

    def update(self, progress: SeedProgress) -> None:
        """Called when a round is done."""

    def close(self) -> None:
        """Called when the training has ended."""


class LineDisplay:
    """Plain lines on stderr: about ten per seed, and one at its end."""

    def __init__(self) -> None:
        self._current: SeedProgress | None = None
        self._shown = 0

    def start(self, progress: SeedProgress) -> None:
        """Print the last line of the previous seed, if there was one."""
        self.close()
        self._current, self._shown = progress, 0

    def update(self, progress: SeedProgress) -> None:
        """Print a line at each tenth of the rounds."""
        tenth = progress.done * _LINES // progress.rounds
        if tenth > self._shown and progress.done < progress.rounds:
            self._shown = tenth
            aside(
                f"{progress.method} seed {progress.seed}: round {progress.done}/{progress.rounds}, "
                f"val {number(progress.val)}, best {number(progress.best)}{spent(progress)}, "
                f"{duration(progress.left)} left"
            )

    def close(self) -> None:
        """Print a line for the seed that ended."""
        last, self._current = self._current, None
        if last is not None and last.done:
            aside(
                f"{last.method} seed {last.seed}: {last.done} of {last.rounds} rounds done, "
                f"best val {number(last.best)} in round {last.best_round}{spent(last)}"
            )


class BarDisplay:
    """A live bar per method on stderr."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._bars: Progress = Progress(
            TextColumn("[bold]{task.description}"),
            TextColumn("seed {task.fields[seed]}"),
            BarColumn(bar_width=24),
            TextColumn("round {task.fields[round]}"),
            TextColumn("val {task.fields[val]}"),
            TextColumn("[green]best {task.fields[best]}"),
            TextColumn("[dim]{task.fields[left]}"),
            console=console.progress(),
            refresh_per_second=_REFRESHES,
        )
        self._tasks: dict[str, tuple[TaskID, int]] = {}
        self._bars.start()

    def start(self, progress: SeedProgress) -> None:
        """Add a bar for a new method; the next seed of a method continues its bar."""
        fields: dict[str, Any] = {
            "seed": progress.seed,
            "round": f"0/{progress.rounds}",
            "val": "-",
            "best": "-",
            "left": "",
        }
        if progress.method not in self._tasks:
            seeds = progress.seeds_after + 1
            task = self._bars.add_task(progress.method, total=seeds * progress.rounds, **fields)
            self._tasks[progress.method] = task, seeds
        else:
            task, seeds = self._tasks[progress.method]
            # A seed that stopped early counts as if all its rounds were done.
            self._bars.update(task, completed=(seeds - progress.seeds_after - 1) * progress.rounds, **fields)

    def update(self, progress: SeedProgress) -> None:
        """Update the bar; it is redrawn `_REFRESHES` times per second."""
        task, seeds = self._tasks[progress.method]
        finished = progress.done == progress.rounds and not progress.seeds_after
        self._bars.update(
            task,
            completed=(seeds - progress.seeds_after - 1) * progress.rounds + progress.done,
            round=f"{progress.done}/{progress.rounds}",
            val=number(progress.val),
            best=number(progress.best) + spent(progress),
            left="" if finished else f"{duration(progress.left)} left",
        )

    def close(self) -> None:
        """Stop redrawing; the bars stay on the screen."""
        self._bars.stop()


class NotebookDisplay:
    """A bar in the output of a notebook's cell, which takes HTML."""

    def __init__(self) -> None:
        shown: Any = importlib.import_module("IPython.display")  # a notebook's kernel has it
        self._html = shown.HTML
        self._handle: Any = shown.display(shown.HTML(""), display_id=True)
        self._rows: dict[tuple[str, int], str] = {}
        self._drawn = -math.inf
        self._last: SeedProgress | None = None

    def start(self, progress: SeedProgress) -> None:
        """Add a row for the seed."""
        self._draw(progress)

    def update(self, progress: SeedProgress) -> None:
        """Redraw, a few times per second."""
        if time.monotonic() - self._drawn >= 1 / _REFRESHES:
            self._draw(progress)
        self._last = progress

    def close(self) -> None:
        """Draw the last state."""
        if self._last is not None:
            self._draw(self._last)

    def _draw(self, progress: SeedProgress) -> None:
        if self._last is not None and self._last is not progress:
            last, self._last = self._last, None
            self._draw(last)
        left = "" if progress.done == progress.rounds else f", {duration(progress.left)} left"
        said = f"{progress.method} seed {progress.seed}: round {progress.done}/{progress.rounds}, val {number(progress.val)}, "
        said += f"best {number(progress.best)}{spent(progress)}{left}"
        bar = f'<progress max="{progress.rounds}" value="{progress.done}"></progress>'
        self._rows[progress.method, progress.seed] = f"<div>{bar} {html.escape(said)}</div>"
        self._handle.update(self._html("".join(self._rows.values())))
        self._drawn = time.monotonic()


class ShownProgress(Callback):
    """The callback that shows the progress of each seed on a display."""

    def __init__(self, display: ProgressDisplay) -> None:
        self.display = display
        self._progress: SeedProgress | None = None

    def start(self, config: RunConfig, seed: int, rounds: int) -> None:
        """A seed starts."""
        from fedquilt.tasks.base import find_metric

        after = len(config.seeds) - config.seeds.index(seed) - 1
        higher = config.metric is None or find_metric(config.metric).higher_is_better
        self._progress = SeedProgress(config.method, seed, after, rounds, higher_is_better=higher)
        self.display.start(self._progress)

    def round(self, record: dict[str, Any]) -> None:
        """A round is done."""
        assert self._progress is not None
        self._progress.add(record)
        self.display.update(self._progress)


@contextmanager
def shown_progress(progress: bool | None = None, watch: Watcher | None = None) -> Iterator[list[Callback]]:
    """Show the progress of what trains in a `with` block; yields the callbacks for it, with those of `watch` after its own.

    Args:
        progress: True: bars on a terminal and in a notebook, else plain lines on stderr. False: nothing. None: as True, but
            nothing where stderr is neither.
        watch: callbacks of the user.
    """
    display = None if progress is False else _display(lines=bool(progress))
    if display is None:
        yield callbacks_of(watch)
        return
    try:
        yield [ShownProgress(display), *callbacks_of(watch)]
    finally:
        display.close()


def _display(lines: bool) -> ProgressDisplay | None:
    if in_notebook():
        return NotebookDisplay()
    if sys.stderr.isatty():
        return BarDisplay()
    return LineDisplay() if lines else None


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel, which shows HTML; IPython is not imported to find out."""
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None


def spent(progress: SeedProgress) -> str:
    """Format the privacy budget spent so far; empty if uploads are not protected."""
    return "" if math.isnan(progress.epsilon) else f", epsilon {progress.epsilon:.3g}"
