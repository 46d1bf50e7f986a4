"""Which runs on disk are compared: those of one comparison, and others that have the same clients and splits."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedquilt
from fedquilt.reports.read_run import read_run
from fedquilt.reports.stored_verdict import comparison_verdict, verdict_of
from support.small_runs import SMALL

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_runs_are_compared_where_their_seals_say_that_they_may_be(tmp_path: Path) -> None:
    fedquilt.compare(["majority", "local"], out="both", **SMALL)
    assert len(comparison_verdict(tmp_path / "both")) == 2 or "cannot" in comparison_verdict(tmp_path / "both")[0]
    fedquilt.run("fedavg", out="same", **SMALL)
    fedquilt.run("fedavg", out="other", split="30/30/40", **SMALL)
    local, same, other = (read_run(tmp_path / name) for name in ("both/local", "same", "other"))
    assert verdict_of([local, same])
    assert verdict_of([local, other]) == []
    assert verdict_of([same, other]) == []  # one method twice
