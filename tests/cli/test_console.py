"""Results go to stdout, remarks to stderr, both as they are."""

from __future__ import annotations

import pytest
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

from fedquilt.cli.console import aside, progress, results, say


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


HOSTILE = "a\x1b[2J\x1b]0;owned\x9b31m\u202e[red][/bold] :smile:"
SHOWN = r"a\u001b[2J\u001b]0;owned\u009b31m\u202e[red][/bold] :smile:"


def test_what_a_terminal_obeys_is_never_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    table = Table(HOSTILE, title=HOSTILE, caption=HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(Text("a" + HOSTILE, "bold"))
    results().print(table)
    results().print(HOSTILE)
    say(HOSTILE)
    aside(HOSTILE + "\nforged")
    out, err = capsys.readouterr()
    assert out.count(SHOWN) == 6  # and once cut off
    assert err == SHOWN + r"\u000aforged" + "\n"
    assert not set(out) & set("\x1b\x9b\u202e")


def test_bars_are_drawn_and_what_they_name_is_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    with Progress(TextColumn("{task.description}", markup=False), console=progress()) as bar:
        bar.add_task("m\x1b]0;owned\x07")
    err = capsys.readouterr().err
    assert r"m\u001b]0" in err
    assert "\x1b[" in err  # its own commands stay
    assert "\x1b]" not in err
