"""What a user sees while it trains: a live bar on a terminal, a few plain lines elsewhere, or nothing."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fedquilt.cli.console import aside

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from fedquilt.runs.config import RunConfig
    from fedquilt.runs.execute import Watcher

_LINES = 10  # about so many lines a seed where there is no terminal
_REFRESHES = 4  # times a second that the bar is drawn: drawing costs milliseconds, a small round no more


@dataclass
class SeedProgress:
    """How far one seed of a run is."""

    method: str
    seed: int
    seeds_after: int
    rounds: int
    done: int = 0
    val: float = math.nan
    best: float = -math.inf
    best_round: int = -1
    pace: float = math.nan
    epsilon: float = math.nan  # spent so far; NaN where uploads are not protected

    def add(self, record: dict[str, Any]) -> None:
        """Take in a round's record."""
        self.done = record["round"] + 1
        seconds = record["seconds"]
        # A moving average: the first rounds are slower. Rounds that a resume replays count as they were.
        self.pace = seconds if math.isnan(self.pace) else 0.9 * self.pace + 0.1 * seconds
        self.epsilon = record.get("epsilon", math.nan)
        val = record.get("val")
        if val is not None:
            self.val = val
            if val > self.best:
                self.best, self.best_round = val, record["round"]

    @property
    def left(self) -> float:
        """Seconds until the run's last seed is done, at the present pace; NaN before the first round."""
        return self.pace * (self.rounds - self.done + self.seeds_after * self.rounds)


class Display(Protocol):
    """Something that shows standings."""

    def start(self, standing: SeedProgress) -> None:
        """A seed starts."""

    def show(self, standing: SeedProgress) -> None:
        """A round is done."""

    def close(self) -> None:
        """Nothing comes any more."""


class Lines:
    """Plain lines on stderr: about ten a seed, and one at its end."""

    def __init__(self) -> None:
        self._current: SeedProgress | None = None
        self._shown = 0

    def start(self, standing: SeedProgress) -> None:
        """End the seed before, if there was one."""
        self.close()
        self._current, self._shown = standing, 0

    def show(self, standing: SeedProgress) -> None:
        """A line each tenth of the rounds."""
        tenth = standing.done * _LINES // standing.rounds
        if tenth > self._shown and standing.done < standing.rounds:
            self._shown = tenth
            aside(
                f"{standing.method} seed {standing.seed}: round {standing.done}/{standing.rounds}, "
                f"val {number(standing.val)}, best {number(standing.best)}{spent(standing)}, "
                f"{duration(standing.left)} left"
            )

    def close(self) -> None:
        """A line for the seed that ended."""
        last, self._current = self._current, None
        if last is not None and last.done:
            aside(
                f"{last.method} seed {last.seed}: {last.done} of {last.rounds} rounds done, "
                f"best val {number(last.best)} in round {last.best_round}{spent(last)}"
            )


class Bars:
    """A live bar a method on stderr."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._bars: Progress = Progress(
            TextColumn("[bold]{task.description}"),
            TextColumn("seed {task.fields[seed]}"),
            BarColumn(bar_width=24),
            TextColumn("round {task.fields[round]}"),
            TextColumn("val {task.fields[val]}"),
            TextColumn("[green]best {task.fields[best]}"),
            TextColumn("[dim]{task.fields[left]}"),
            console=Console(file=sys.stderr),
            refresh_per_second=_REFRESHES,
        )
        self._tasks: dict[str, tuple[TaskID, int]] = {}
        self._bars.start()

    def start(self, standing: SeedProgress) -> None:
        """A bar for a new method; for the next seed of one that has a bar, that bar goes on."""
        fields: dict[str, Any] = {
            "seed": standing.seed,
            "round": f"0/{standing.rounds}",
            "val": "-",
            "best": "-",
            "left": "",
        }
        if standing.method not in self._tasks:
            seeds = standing.seeds_after + 1
            context = self._bars.add_task(standing.method, total=seeds * standing.rounds, **fields)
            self._tasks[standing.method] = context, seeds
        else:
            context, seeds = self._tasks[standing.method]
            # A seed that ran out of patience still counts as whole.
            self._bars.update(context, completed=(seeds - standing.seeds_after - 1) * standing.rounds, **fields)

    def show(self, standing: SeedProgress) -> None:
        """Move the bar; it is drawn later, at its own pace."""
        context, seeds = self._tasks[standing.method]
        over = standing.done == standing.rounds and not standing.seeds_after
        self._bars.update(
            context,
            completed=(seeds - standing.seeds_after - 1) * standing.rounds + standing.done,
            round=f"{standing.done}/{standing.rounds}",
            val=number(standing.val),
            best=number(standing.best) + spent(standing),
            left="" if over else f"{duration(standing.left)} left",
        )

    def close(self) -> None:
        """Leave the bars as they stand."""
        self._bars.stop()


@contextmanager
def watching(quiet: bool) -> Iterator[Watcher | None]:
    """What to hand to the training as `watch`, for a `with` block; None when quiet."""
    if quiet:
        yield None
        return
    display: Display = Bars() if sys.stderr.isatty() else Lines()
    try:
        yield watcher(display)
    finally:
        display.close()


def watcher(display: Display) -> Watcher:
    """A `Watcher` that keeps the standing of each seed and has it shown."""

    def watch(config: RunConfig, seed: int, rounds: int) -> Callable[[dict[str, Any]], None]:
        after = len(config.seeds) - config.seeds.index(seed) - 1
        standing = SeedProgress(config.method, seed, after, rounds)
        display.start(standing)

        def on_round(record: dict[str, Any]) -> None:
            standing.add(record)
            display.show(standing)

        return on_round

    return watch


def number(value: float) -> str:
    """A metric in percent, or a dash before the first evaluation."""
    return f"{value:.2f}" if math.isfinite(value) else "-"


def spent(standing: SeedProgress) -> str:
    """What of a privacy budget is spent, where uploads are protected."""
    return "" if math.isnan(standing.epsilon) else f", epsilon {standing.epsilon:.3g}"


def duration(seconds: float) -> str:
    """`42 s`, `3 min`, `2 h 5 min`."""
    if not math.isfinite(seconds):
        return "? s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
