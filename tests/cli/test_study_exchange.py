"""`fedquilt study export` and `merge`: from one folder into another, and what is wrong told in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedquilt.runs import compute_version
from fedquilt.studies.store import CellStore
from support.tiny_studies import cells_of, store_cell, study_of


@pytest.fixture
def done(here: Path) -> CellStore:
    """A study here, with all its cells done."""
    store = CellStore(here / "studies")
    for cell in cells_of(study_of(here)):
        store_cell(store, cell, test=float(cell.seed))
    return store


def test_cells_are_exported_merged_and_reported(call: Callable, here: Path, done: CellStore) -> None:
    called = call("study export tiny.yaml -o mine.jsonl.gz")
    assert called.status == 0, called.err
    assert called.out.startswith("12 cells, ")
    assert call("study export").status == 0
    assert (here / "cells.jsonl.gz").read_bytes() == (here / "mine.jsonl.gz").read_bytes()
    merged = call("study merge mine.jsonl.gz cells.jsonl.gz --into other")
    assert merged.status == 0, merged.err
    assert merged.out == "12 new cells in other, 12 known already, 0 with another result.\n"
    report = call("study report tiny.yaml --into other")
    assert report.status == 0, report.err
    assert "0.50 ± 0.50" in report.out


def test_cells_of_another_version_of_the_computation_are_called_stale(
    call: Callable, done: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "stale" not in call("study export").err
    monkeypatch.setattr(compute_version, "COMPUTE_VERSION", 10**6)
    told = "12 of these cells are stale: another version of the computation finished them.\n"
    assert call("study export -o stale.jsonl.gz").err == told
    merged = call("study merge stale.jsonl.gz --into other")
    assert merged.err == told
    assert merged.out == "12 new cells in other, 0 known already, 0 with another result.\n"
    assert call("study merge stale.jsonl.gz --into other").err == ""


def test_what_differs_is_named_and_what_is_wrong_is_one_sentence(
    call: Callable, refused: Callable, here: Path, done: CellStore
) -> None:
    assert call("study export --without-metrics").status == 0
    store_cell(CellStore(here / "other"), cells_of(study_of(here))[0], test=7.0)
    merged = call("study merge cells.jsonl.gz --into other")
    assert merged.status == 0
    assert "11 new cells in other, 0 known already, 1 with another result." in merged.out
    assert "Two results, the one in other was kept: " in merged.err
    assert "test is 7.00 here and 0.00 there" in merged.err
    assert refused("study export tiny.yaml --into empty") == (
        "Nothing of tiny.yaml is done in empty, so there is nothing to export."
    )
    assert "There is no file 'none'" in refused("study merge none")
