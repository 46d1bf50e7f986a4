"""The sentence about how long the rest takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.methods.base import methods
from fedquilt.studies import time_left as module
from fedquilt.studies.store import CellStore
from fedquilt.studies.time_left import time_left
from support.tiny_studies import VERSIONS, cells_of, study_of


def test_it_says_how_long_and_how_it_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measured_unit", lambda device: 1000.0)
    study, store = study_of(tmp_path), CellStore(tmp_path)
    cells = cells_of(study)
    first = time_left(study, cells, store.by_identity())
    assert first.startswith("The 12 cells that are left take about ")
    assert first.endswith(" on this machine, one at a time (from a short measurement; it may be wrong by a factor).")
    for cell in cells[:-2]:
        facts = {
            "config": cell.config.model_dump(), "seconds": 40.0, "measures": {"test": 1.0, "val": 1.0}, "finished": 1.0,
            "device": "CPU", "versions": VERSIONS,
        }  # fmt: skip
        store.finish(cell, facts, keep_models=True)
    assert time_left(study, cells, store.by_identity(), jobs=2) == (
        "The 2 cells that are left take about 40 s on this machine, 2 at a time (from 10 finished cells)."
    )
    assert time_left(study, cells[:-2], store.by_identity()) == "All cells are done."
    monkeypatch.setattr(methods()["local"], "compute_version", 2)
    assert "The 4 cells that are left" in time_left(
        study, cells[:-2], store.by_identity()
    )  # stale ones are to be run again
