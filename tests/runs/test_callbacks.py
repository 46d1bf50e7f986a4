"""The protocol of callbacks; tests/runs/test_execute.py holds runs against it."""

from __future__ import annotations

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.runs.callbacks import Callback, Callbacks, callbacks_of
from fedquilt.runs.config import RunConfig
from fedquilt.training.stop import StopRun
from support.small_runs import Seen


def test_one_several_or_none_may_be_given_and_nothing_else() -> None:
    one, other = Callback(), Seen()
    assert callbacks_of(None) == []
    assert callbacks_of(one) == [one]
    assert callbacks_of((one, other)) == [one, other]
    for wrong in (print, [print], Seen):
        with pytest.raises(FedquiltError, match=r"watch takes a fedquilt\.Callback or a list of them"):
            callbacks_of(wrong)  # type: ignore[arg-type]


def test_a_callback_does_nothing_by_itself() -> None:
    callback = Callback()
    callback.start(RunConfig(), 0, 1)
    callback.round({"round": 0})
    callback.end(None)


def test_all_are_told_before_a_stop_takes_place() -> None:
    class Stop(Callback):
        def round(self, record: dict) -> None:
            raise StopRun("first")

    class Later(Seen):
        def round(self, record: dict) -> None:
            super().round(record)
            raise StopRun("second")

    later = Later()
    told = Callbacks([Stop(), later])
    told.start(RunConfig(), 0, 1)
    with pytest.raises(StopRun, match="first"):
        told.round({"round": 0})
    assert later.rounds == [(0, 0)]
    assert told.stop is not None
    assert told.stop.reason == "first"


def test_a_stop_at_the_start_or_the_end_waits_until_it_is_looked_at() -> None:
    class Stop(Callback):
        def end(self, summary: dict | None) -> None:
            raise StopRun

    told = Callbacks(Stop())
    told.start(RunConfig(), 0, 1)
    assert told.stop is None
    told.end({})
    assert told.stop is not None
