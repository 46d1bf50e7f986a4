"""The page: its tables have what was found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.studies.scoreboard import claims, verdicts
from fedquilt.studies.scoreboard.page import scoreboard_of, write_scoreboard
from support.scoreboards import tuned


def test_the_page_has_ranks_costs_verdicts_and_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (claims, verdicts):
        monkeypatch.setattr(module, "study_names", lambda: ["fedpub-table-8"])
    values = np.array([60.0, 62.0, 62.5, 70.0])[:, None, None] + np.random.default_rng(1).normal(0, 0.8, (4, 8, 2))
    costs = {"local": (0.1, 0.0), "fedavg": (0.2, 4.0), "fedpub": (0.8, 2.0), "quilt": (0.4, 2.0)}
    board = scoreboard_of({"one": tuned(tmp_path, values, costs=costs)})
    (tmp_path / "studies" / "fedpub-table-8").mkdir(parents=True)
    (tmp_path / "studies" / "fedpub-table-8" / "report.md").write_text("#")
    written = write_scoreboard(board, tmp_path, "fedquilt study scoreboard")
    assert all(path.is_file() for path in written)
    page = (tmp_path / "index.md").read_text()
    assert "The papers print 24 numbers in their tables and figures" in page
    assert "For 0 of them we have a number of our own" in page
    assert "    fedquilt study scoreboard\n" in page
    assert "| Quilt | 1.00 | 1.00 to 1.00 | 8 |" in page
    assert "| FED-PUB | +0." in page
    assert "| 4.00x | 800.00 | 0.50x | 2.00 |" in page
    assert "| [FED-PUB, Table 8](studies/fedpub-table-8/report.md) | 24 | 0 | 0 | 0 | 24 |" in page
    assert "| FedSSA | semantic sharing (classes as Gaussians) (fedssa-table-8) | +3.69 | – | 0 | – | not run |" in page
    for figure in ("ranks-1", "costs", "bytes"):
        assert f"](scoreboard/{figure}.svg)" in page
    assert "## Ranks of 4 methods at 8 places" in page
    assert "At these places, settings were chosen on seed 0, which is also reported, and Quilt" in page
    assert "stale" not in page
    assert "verdicts.svg" not in page  # nothing printed was run


def test_without_ranks_the_rest_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (claims, verdicts):
        monkeypatch.setattr(module, "study_names", list)
    write_scoreboard(scoreboard_of({"one": tuned(tmp_path, np.ones((4, 1, 1)))}), tmp_path, "x")
    page = (tmp_path / "index.md").read_text()
    assert "## Ranks" not in page
    assert "ranks-1" not in page
    assert "## What the papers claim" in page
