"""Results go to stdout, remarks to stderr, both as they are."""

from __future__ import annotations

import pytest

from fedquilt.cli.console import aside, results, say


def test_lines_are_neither_folded_nor_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    line = "[bold]" + "x" * 300
    say(line)
    aside(line)
    assert capsys.readouterr() == (line + "\n", line + "\n")


def test_tables_are_wide_in_a_pipe_and_as_wide_as_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert results().width == 130
    monkeypatch.setenv("COLUMNS", "77")
    assert results().width == 77
