from __future__ import annotations

import math

import pytest

from fedquilt.common.console import aside, duration, number, progress


def test_what_a_terminal_would_obey_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    aside("a\x1b[2Jb")
    progress().print("c\x1b[2Jd")
    said = capsys.readouterr().err
    assert "\x1b[2J" not in said
    assert said.count("[2J") == 2


def test_a_metric_before_the_first_evaluation_is_a_dash() -> None:
    assert (number(12.345), number(math.nan)) == ("12.35", "-")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89, "89 s"), (150, "2 min"), (7500, "2 h 5 min"), (math.nan, "? s")],
)
def test_durations_are_told_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text
