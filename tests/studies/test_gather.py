"""The summary of a study, gathered from the store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedquilt.runs.compute_version import compute_version
from fedquilt.studies import digests
from fedquilt.studies.cells import Missing
from fedquilt.studies.gather import gather, summarise
from fedquilt.studies.plan import plan_study
from fedquilt.studies.published import read_published
from fedquilt.studies.spec import find_study
from fedquilt.studies.store import CellStore
from support.hospitals import CLASSES, WARDS, write_hospital, write_hospitals
from support.tiny_studies import PUBLISHED, cells_of, no_network, store_cell, study_of, write_study


def test_a_summary_gathers_cells_published_numbers_failures_and_what_is_missing(tmp_path: Path) -> None:
    axes = {
        "method": [
            {"label": "Local", "method": "local", "candidates": [{"lr": 0.1}, {"lr": 0.2}]},
            {"label": "FED-PUB", "method": "fedpub"},
        ],
        "clients": [2, 3],
    }
    name = write_study(tmp_path, axes=axes, seeds=3, published=PUBLISHED)
    study, store = find_study(name), CellStore(tmp_path / "studies")
    cells = cells_of(study)
    for cell in cells:
        at, seed = cell.at, cell.seed
        if at == {"method": "Local", "clients": "2"} and (seed == 0 or (cell.candidate == 1 and seed == 1)):
            store_cell(store, cell, val=50.0 + cell.candidate, test=60.0 + seed)
        elif at == {"method": "FED-PUB", "clients": "2"}:
            store_cell(store, cell, val=1.0, test=None if seed == 2 else 90.0)
        elif at["method"] == "FED-PUB" and seed == 0:
            store.fail(cell, "it rained")
    gone = Missing({"method": "Local", "clients": "3"}, "no such thing")
    summary = summarise(study, cells, [gone], read_published(study, name), store)
    first, gone_entry, pub, failed = summary.entries
    assert (first.by_seed, first.settings, first.choices, first.planned) == ({0: 60.0, 1: 61.0}, {"lr": 0.2}, 2, 3)
    assert (first.printed, first.verdict, first.published and first.published.std) == (60.0, "exceeded", 1.0)
    assert (gone_entry.missing, gone_entry.by_seed) == ("no such thing", {})
    assert (pub.by_seed, pub.verdict, pub.choices, sorted(pub.cells)) == ({0: 90.0, 1: 90.0}, "reached", 1, [0, 1, 2])
    assert failed.by_seed == {}
    assert [one.mean for one in summary.averages] == [70.0]
    assert summary.failed == {"FED-PUB, 3, seed 0": "it rained"}
    assert summary.codes == {compute_version(): 5}
    assert summary.machines == {"CPU, PyTorch 0.0, fedquilt 0.0": 5}
    assert summary.seeds == 3
    assert summary.done == (5, 9)
    assert summary.verdicts("test") == {"exceeded": 1, "reached": 1, "missed": 0, "not run": 0}


def test_a_failure_of_a_cell_that_was_done_elsewhere_is_none(tmp_path: Path) -> None:
    study, store = study_of(tmp_path), CellStore(tmp_path / "studies")
    cells = cells_of(study)
    store_cell(store, cells[0], test=1.0)
    store.fail(cells[0], "late")
    assert summarise(study, cells, [], [], store).failed == {}


def test_cells_by_other_code_count_and_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, store = study_of(tmp_path), CellStore(tmp_path / "studies")
    cells = cells_of(study)
    with monkeypatch.context() as older:
        older.setattr("fedquilt.studies.cells.compute_version", lambda method, kinds=(): "older")
        older.setattr("fedquilt.studies.store.compute_version", lambda method, kinds=(): "older")
        store_cell(store, cells[0], test=1.0)
        store_cell(store, cells[1], test=1.0)
    store_cell(store, cells[1], test=2.0, finished=0.0)
    summary = summarise(study, cells, [], [], store)
    assert summary.codes == {"older": 1, compute_version(): 1}
    assert [entry.mean for entry in summary.entries[:2]] == [1.0, 2.0]
    assert [entry.stale for entry in summary.entries[:2]] == [True, False]
    assert summary.stale == 1


def test_gathering_counts_seeds_that_were_begun_and_names_each_absence_once(
    ran_study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_network(monkeypatch)
    summary = gather(plan_study("tiny.yaml"), Path("studies"))
    assert (summary.seeds, summary.done) == (2, (8, 8))
    assert [entry.settings for entry in summary.of("test") if entry.at["method"] == "FED-PUB"] == [{"lr": 0.01}] * 2
    assert sorted(summary.failed) == [f"FED-PUB, {clients} (lr=1e+30), seed 0" for clients in (2, 3)]
    assert len(summary.missing) == 2
    part = gather(plan_study("tiny.yaml", {"method": ["fedpub"]}, 1), Path("studies"))
    assert [len(entry.by_seed) for entry in part.of("test")] == [1, 1]
    assert part.missing == []
    assert [p.mean for p in part.averages] == [70.0]  # all clients with printed numbers are in it
    assert gather(plan_study("tiny.yaml", {"clients": ["3"]}), Path("studies")).averages == []
    elsewhere = gather(plan_study("tiny.yaml"), Path("nowhere"))
    assert not any(entry.by_seed for entry in elsewhere.entries)


def test_a_method_that_is_not_here_on_a_graph_that_is_not_here_is_missing_once(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_network(monkeypatch)
    axes = {"method": ["local", {"label": "X", "method": "tomorrows"}], "dataset": ["cora", "communities-3"]}
    name = write_study(elsewhere, axes=axes, columns=["dataset"], options={"clients": 2})
    places = [tuple(one.at.values()) for one in gather(plan_study(name), elsewhere / "studies").missing]
    assert sorted(places) == [("X", "communities-3"), ("X", "cora"), ("local", "cora")]


def test_the_value_after_some_rounds_is_in_the_summary(ran_study: Path) -> None:
    summary = gather(plan_study("tiny.yaml"), Path("studies"))
    found = [entry for entry in summary.of("test@2") if entry.at["method"] == "Local"]
    assert all(len(entry.by_seed) == 2 for entry in found)


def test_a_folder_that_changed_has_results_of_its_own(elsewhere: Path) -> None:
    """Also where it is as it was, and another one's result is newer; where it is gone, the newest counts."""

    def test(seed: int | None) -> float | None:
        digests._digest_or_error.cache_clear()
        if seed is not None:
            write_hospital(elsewhere / "hospital-a", CLASSES, seed=seed)
        return gather(plan_study(name), store.into).entries[0].by_seed.get(0)

    def finish(result: float) -> None:
        store_cell(store, plan_study(name).cells[0], finished=result, test=result)

    write_hospitals(elsewhere)
    data = [{"label": "all", "clients_from": ["hospital-*"]}]
    axes = {"method": ["local"], "data": data}
    name = write_study(elsewhere, options={"rounds": 1}, axes=axes, columns=["data"], seeds=1)
    store = CellStore(elsewhere / "studies")
    assert test(seed=7) is None
    finish(50.0)
    assert test(seed=8) is None
    finish(60.0)
    assert (test(seed=8), test(seed=7)) == (60.0, 50.0)
    for ward in WARDS:
        shutil.rmtree(elsewhere / ward)
    assert test(None) == 60.0
    digests._digest_or_error.cache_clear()
