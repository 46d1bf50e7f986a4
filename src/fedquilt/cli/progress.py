"""Progress of a training on stderr: live bars on a terminal, a few plain lines in a file or a pipe, or nothing."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fedquilt.cli import console
from fedquilt.cli.console import aside

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from fedquilt.runs.config import RunConfig
    from fedquilt.runs.execute import Watcher

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


@contextmanager
def watching(quiet: bool) -> Iterator[Watcher | None]:
    """Show progress and notices during a `with` block; yield the watcher for the training, None when quiet."""
    with showing_notices(logging.WARNING if quiet else logging.INFO), _progress(quiet) as watch:
        yield watch


@contextmanager
def showing_notices(level: int) -> Iterator[None]:
    """Print what the package logs during a `with` block on stderr, from this level on."""
    logger, handler = logging.getLogger("fedquilt"), NoticeHandler(level)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class NoticeHandler(logging.Handler):
    """Prints log records as they are, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one."""
        aside(record.getMessage())


@contextmanager
def _progress(quiet: bool) -> Iterator[Watcher | None]:
    if quiet:
        yield None
        return
    display: ProgressDisplay = BarDisplay() if sys.stderr.isatty() else LineDisplay()
    try:
        yield watcher(display)
    finally:
        display.close()


def watcher(display: ProgressDisplay) -> Watcher:
    """Return a `Watcher` that shows the progress of each seed."""

    def watch(config: RunConfig, seed: int, rounds: int) -> Callable[[dict[str, Any]], None]:
        from fedquilt.reports.names import metric_name

        after = len(config.seeds) - config.seeds.index(seed) - 1
        higher = metric_name(config.metric or "accuracy").higher_is_better
        progress = SeedProgress(config.method, seed, after, rounds, higher_is_better=higher)
        display.start(progress)

        def on_round(record: dict[str, Any]) -> None:
            progress.add(record)
            display.update(progress)

        return on_round

    return watch


def number(value: float) -> str:
    """Format a metric in percent, or a dash before the first evaluation."""
    return f"{value:.2f}" if math.isfinite(value) else "-"


def spent(progress: SeedProgress) -> str:
    """Format the privacy budget spent so far; empty if uploads are not protected."""
    return "" if math.isnan(progress.epsilon) else f", epsilon {progress.epsilon:.3g}"


def duration(seconds: float) -> str:
    """Format a duration as `42 s`, `3 min` or `2 h 5 min`."""
    if not math.isfinite(seconds):
        return "? s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
