"""The time of a search."""

from __future__ import annotations

import math

import pytest

from fedquilt.tuning.progress import SearchClock


def test_time_left_follows_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 20.0, 20.0, 20.0]).__next__
    monkeypatch.setattr("fedquilt.tuning.progress.time.monotonic", clock)
    clock = SearchClock(first=3, trials=10, timeout=None)
    assert clock.left(3, 0.5) == 150.0  # half a trial took 10 s, and 7.5 are left
    assert clock.left(3, 1.0) == 140.0


def test_time_left_is_not_known_at_the_start_and_not_longer_than_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 10.0, 10.0, 40.0]).__next__
    monkeypatch.setattr("fedquilt.tuning.progress.time.monotonic", now)
    clock = SearchClock(first=1, trials=10, timeout=30.0)
    assert math.isnan(clock.left(1, 0.0))
    assert clock.left(1, 1.0) == 20.0  # nine more trials would take 90 s
    assert clock.over
