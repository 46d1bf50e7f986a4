"""The threads of a run: as asked, else one for so much work."""

from __future__ import annotations

from typing import Any

import pytest

from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.runs.run_threads import PRODUCTS, products, run_threads

pytestmark = pytest.mark.usefixtures("elsewhere")


def resolved(**options: Any) -> ResolvedRun:
    return ResolvedRun(RunConfig.build({"method": "local", "clients": 4, "device": "cpu"} | options))


def test_small_work_has_one_thread_and_more_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("fedquilt.runs.run_threads.available_cpus", lambda: 3)
    small, wide = resolved(), resolved(settings={"hidden": 2000})
    assert products(small) < PRODUCTS < products(wide) / 3
    assert (run_threads(small), run_threads(wide)) == (1, 3)
    assert products(resolved(settings={"hidden": 2000}, cohort_size=1)) == products(wide) / 4


def test_what_is_asked_for_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert run_threads(resolved()) is None
    assert run_threads(resolved(threads=5)) == 5
