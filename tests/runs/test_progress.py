from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from fedquilt.runs import progress
from fedquilt.runs.config import RunConfig
from fedquilt.runs.progress import BarDisplay, LineDisplay, ShownProgress, in_notebook, shown_progress
from support.small_runs import Seen


def record(round: int, val: float | None = None, seconds: float = 1.0) -> dict:
    return {"round": round, "seconds": seconds} | ({} if val is None else {"val": val})


def test_lines_come_at_each_tenth_and_at_the_end_of_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineDisplay()
    watch = ShownProgress(lines)
    config = RunConfig(method="local", seeds=[3, 5])
    for seed in config.seeds:
        watch.start(config, seed, 100)
        for number in range(100):
            watch.round(record(number, number / 2))
    lines.close()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 20
    assert said[0] == "local seed 3: round 10/100, val 4.50, best 4.50, 3 min left"
    assert said[9] == "local seed 3: 100 of 100 rounds done, best val 49.50 in round 99"
    assert said[18] == "local seed 5: round 90/100, val 44.50, best 44.50, 10 s left"


def test_a_seed_that_stopped_early_still_ends_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineDisplay()
    watch = ShownProgress(lines)
    watch.start(RunConfig(), 0, 50)
    watch.round(record(0))
    watch.round(record(1, 30.0))
    lines.close()
    lines.close()
    assert capsys.readouterr().err == "quilt seed 0: 2 of 50 rounds done, best val 30.00 in round 1\n"


def test_what_is_spent_of_a_privacy_budget_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineDisplay()
    watch = ShownProgress(lines)
    watch.start(RunConfig(), 0, 2)
    watch.round(record(0, 30.0) | {"epsilon": 1.2345})
    watch.round(record(1, 20.0) | {"epsilon": 2.0})
    lines.close()
    first, last = capsys.readouterr().err.splitlines()
    assert first == "quilt seed 0: round 1/2, val 30.00, best 30.00, epsilon 1.23, 1 s left"
    assert last.endswith("best val 30.00 in round 0, epsilon 2")


def test_nothing_is_shown_unless_someone_sees_it_or_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Seen()
    for asked in (False, None):
        with shown_progress(asked, own) as callbacks:
            assert callbacks == [own]
    with shown_progress(True, [own]) as callbacks:
        assert isinstance(callbacks[0].display, LineDisplay)
        assert callbacks[1:] == [own]
    monkeypatch.setattr(sys, "stderr", Terminal())
    with shown_progress(None) as callbacks:
        assert isinstance(callbacks[0].display, BarDisplay)
    with shown_progress(False) as callbacks:
        assert callbacks == []


def test_a_notebook_gets_html(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    handle = SimpleNamespace(update=drawn.append)
    shell = SimpleNamespace(kernel=object())
    shown = SimpleNamespace(HTML=str, display=lambda *_, **__: handle)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=shown))
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    assert in_notebook()
    monkeypatch.setattr(progress, "_REFRESHES", 1e9)
    with shown_progress(None) as (watch,):
        for seed in (0, 1):
            watch.start(RunConfig(method="<b>", seeds=[0, 1]), seed, 2)
            watch.round(record(0, 40.0))
            watch.round(record(1, 50.0))
    assert drawn[-1].count('<progress max="2" value="2">') == 2
    assert "&lt;b&gt; seed 1: round 2/2, val 50.00, best 50.00<" in drawn[-1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_with_all_there_is_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    config = RunConfig(method="fedpub", seeds=[0, 1])
    with shown_progress() as (watch,):
        for seed in config.seeds:
            watch.start(config, seed, 4)
            for number in range(3):
                watch.round(record(number, 50.0 + number))
    said = screen.getvalue()
    for piece in ("fedpub", "seed 1", "3/4", "val 52.00", "best 52.00", "left"):
        assert piece in said


def test_a_bar_counts_a_seed_that_ran_out_of_patience_as_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    bars = BarDisplay()
    watch = ShownProgress(bars)
    config = RunConfig(seeds=[0, 1, 2])
    watch.start(config, 0, 10)
    watch.round(record(2, 50.0))
    watch.start(config, 1, 10)
    (context,) = bars._bars.tasks
    assert (context.completed, context.total) == (10, 30)
    bars.close()
