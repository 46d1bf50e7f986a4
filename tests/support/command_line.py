"""Fixtures of tests that call commands: a clean working folder, and a way to call `fedquilt` in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedquilt.cli import main


@dataclass(frozen=True)
class Called:
    status: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The one line that an error prints."""
        assert self.err.startswith("fedquilt: "), self.err
        assert self.err.count("\n") == 1, self.err
        assert self.err.endswith((".\n", "?\n")), self.err
        assert "Traceback" not in self.err
        return self.err.removeprefix("fedquilt: ").strip()


Call = Callable[..., Called]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, no real graphs, and tables as wide as in a pipe (pytest's workers set COLUMNS)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("FEDQUILT_DATA", str(tmp_path / "no-graphs"))
    return tmp_path


@pytest.fixture
def call(here: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call `fedquilt` with a line of arguments."""

    def call(line: str) -> Called:
        capsys.readouterr()
        status = main(line.split())
        captured = capsys.readouterr()
        return Called(status, captured.out, captured.err)

    return call


@pytest.fixture
def refused(call: Call, here: Path) -> Callable[[str], str]:
    """Call a command that must be refused: one sentence, status 2, nothing written; the sentence."""

    def refused(line: str) -> str:
        before = sorted(here.rglob("*"))
        called = call(line)
        assert called.status == 2, called
        assert called.out == ""
        assert sorted(here.rglob("*")) == before
        return called.sentence

    return refused
