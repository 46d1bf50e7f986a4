from __future__ import annotations

import logging

import pytest

from fedquilt.cli.progress import watching
from fedquilt.runs.config import RunConfig


def test_a_command_shows_lines_and_notices_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(quiet=False) as (watch,):
        logging.getLogger("fedquilt.somewhere").info("a notice")
        watch.start(RunConfig(), 0, 1)
        watch.round({"round": 0, "seconds": 1.0, "val": 30.0})
    assert capsys.readouterr().err == "a notice\nquilt seed 0: 1 of 1 rounds done, best val 30.00 in round 0\n"


def test_quiet_shows_warnings_only(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(quiet=True) as watch:
        assert watch == []
        logging.getLogger("fedquilt.somewhere").info("a notice")
        logging.getLogger("fedquilt.somewhere").warning("a warning")
    assert capsys.readouterr().err == "a warning\n"
