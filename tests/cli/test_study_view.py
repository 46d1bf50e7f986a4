"""Progress displays of a study."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fedquilt.cli.study_view import LiveProgress, ProgressLines, progress_display, sentence
from fedquilt.studies.progress import StudyProgress
from support.tiny_studies import cells_of, study_of


def test_the_progress_of_a_study_in_words(tmp_path: Path) -> None:
    progress = StudyProgress()
    progress.start(10, 3, 2)
    assert sentence(progress) == "3 of 10 cells done, time left not known yet"
    cell = cells_of(study_of(tmp_path))[0]
    progress.begin(0, cell)
    progress.round(0, 1, 3)
    assert progress.running == {0: (cell, 1, 3)}
    progress.end(0, cell, "failed", 1.0, math.nan)
    progress.end(0, cell, "done", 1.0, 60.0)
    progress.end(0, cell, "held", 1.0, 60.0)
    assert sentence(progress).startswith("4 of 10 cells done, 1 failed, ")
    assert sentence(progress).endswith(" left")
    progress.start(5, 4, 2)
    assert sentence(progress) == "4 of 5 cells done, 1 failed"


def test_the_display_suits_stderr(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert type(progress_display(quiet=True)) is StudyProgress
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    assert isinstance(progress_display(quiet=False), ProgressLines)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    live = progress_display(quiet=False)
    assert isinstance(live, LiveProgress)
    cell = cells_of(study_of(tmp_path))[0]
    live.start(2, 0, 1)
    live.begin(0, cell)
    live._render()
    live.round(0, 1, 3)
    live._render()
    live.end(0, cell, "failed", 1.0, math.nan)
    live._render()
    live.close()


def test_lines_tell_the_start_each_failure_and_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ProgressLines()
    cells = cells_of(study_of(tmp_path))[:4]
    lines.start(4, 0, 1)
    for cell, outcome in zip(cells, ("done", "done", "failed", "done"), strict=True):
        lines.begin(0, cell)
        lines.end(0, cell, outcome, 1.0, 60.0)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "0 of 4 cells done, time left not known yet"
    assert [line.split(" in ")[0] for line in told[1:]] == [  # the second is less than two seconds after the first
        f"{cells[0].label}: done",
        f"{cells[2].label}: failed",
        f"{cells[3].label}: done",
    ]
    assert told[-1].endswith("3 of 4 cells done, 1 failed")
