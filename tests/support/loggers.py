"""Runs that are logged: whole, or stopped and resumed; and what a log of them must say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.loggers.tags import scalars
from fedquilt.training.round_store import Record
from support.small_runs import SMALL, stop_after

Series = dict[str, list[tuple[int, float]]]
LONG: dict[str, Any] = SMALL | {"rounds": 5, "evaluate_every": 2, "seeds": [3]}
# After which round it stops, and how often it is saved: after each round, or never, so that all are done again.
STOPS = [(3, 0.0), (3, 1000.0), (0, 0.0)]


def expected(records: list[Record]) -> Series:
    """The series that a log of these rounds holds."""
    series: Series = {}
    for record in records:
        for tag, value in scalars(record).items():
            series.setdefault(tag, []).append((record["round"], pytest.approx(value)))
    return series


def stopped_and_resumed(tool: str, round: int, save_every: float, between: Callable[[], None] = lambda: None) -> Any:
    """A run in the folder "out", stopped in its only seed after a round and resumed; `between`, something else happens."""
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run("fedpub", out="out", log=tool, watch=stop_after(3, round), **LONG, checkpoint_seconds=save_every)
    between()
    return fedquilt.resume("out", log=[tool])


def untimed(series: Series) -> dict[str, Any]:
    """The series without their values where these are times, which differ when a round is done again."""
    timed = ("seconds", "timings/")
    return {t: [step for step, _ in points] if t.startswith(timed) else points for t, points in series.items()}


def logs(path: str = "out") -> Path:
    return Path(path) / "logs"
