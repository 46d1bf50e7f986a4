from __future__ import annotations

import io
import math
import sys

import pytest

from fedquilt.cli.progress import BarDisplay, LineDisplay, duration, watcher, watching
from fedquilt.runs.config import RunConfig


def record(round: int, val: float | None = None, seconds: float = 1.0) -> dict:
    return {"round": round, "seconds": seconds} | ({} if val is None else {"val": val})


def test_lines_come_at_each_tenth_and_at_the_end_of_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineDisplay()
    watch = watcher(lines)
    config = RunConfig(method="local", seeds=[3, 5])
    for seed in config.seeds:
        on_round = watch(config, seed, 100)
        for number in range(100):
            on_round(record(number, number / 2))
    lines.close()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 20
    assert said[0] == "local seed 3: round 10/100, val 4.50, best 4.50, 3 min left"
    assert said[9] == "local seed 3: 100 of 100 rounds done, best val 49.50 in round 99"
    assert said[18] == "local seed 5: round 90/100, val 44.50, best 44.50, 10 s left"


def test_a_seed_that_stopped_early_still_ends_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineDisplay()
    on_round = watcher(lines)(RunConfig(), 0, 50)
    on_round(record(0))
    on_round(record(1, 30.0))
    lines.close()
    lines.close()
    assert capsys.readouterr().err == "quilt seed 0: 2 of 50 rounds done, best val 30.00 in round 1\n"


def test_what_is_spent_of_a_privacy_budget_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineDisplay()
    on_round = watcher(lines)(RunConfig(), 0, 2)
    on_round(record(0, 30.0) | {"epsilon": 1.2345})
    on_round(record(1, 20.0) | {"epsilon": 2.0})
    lines.close()
    first, last = capsys.readouterr().err.splitlines()
    assert first == "quilt seed 0: round 1/2, val 30.00, best 30.00, epsilon 1.23, 1 s left"
    assert last.endswith("best val 30.00 in round 0, epsilon 2")


def test_quiet_watches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(quiet=True) as watch:
        assert watch is None
    assert capsys.readouterr().err == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_with_all_there_is_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    config = RunConfig(method="fedpub", seeds=[0, 1])
    with watching(quiet=False) as watch:
        assert watch is not None
        for seed in config.seeds:
            on_round = watch(config, seed, 4)
            for number in range(3):
                on_round(record(number, 50.0 + number))
    said = screen.getvalue()
    for piece in ("fedpub", "seed 1", "3/4", "val 52.00", "best 52.00", "left"):
        assert piece in said


def test_a_bar_counts_a_seed_that_ran_out_of_patience_as_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    bars = BarDisplay()
    watch = watcher(bars)
    config = RunConfig(seeds=[0, 1, 2])
    watch(config, 0, 10)(record(2, 50.0))
    watch(config, 1, 10)
    (context,) = bars._bars.tasks
    assert (context.completed, context.total) == (10, 30)
    bars.close()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89, "89 s"), (150, "2 min"), (7500, "2 h 5 min"), (math.nan, "? s")],
)
def test_durations_are_told_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text
