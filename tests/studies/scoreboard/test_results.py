"""Results of studies, from cells and from reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.methods.base import methods
from fedquilt.studies.formats import to_csv
from fedquilt.studies.plan import plan_study
from fedquilt.studies.scoreboard import results
from fedquilt.studies.scoreboard.results import read_report, read_results
from fedquilt.studies.spec import find_study
from fedquilt.studies.store import CellStore
from support.tiny_studies import VERSIONS, store_cell

NAME = "fedpub-table-8"


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only two studies, so that the tests are quick."""
    monkeypatch.setattr(results, "study_names", lambda: [NAME, "fedpub-table-7"])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> CellStore:
    """The cells of two rows on one graph: of FedAvg all candidates, of Local not all."""
    store = CellStore(tmp_path_factory.mktemp("store"))
    plan = plan_study(NAME, {"method": ["local", "fedavg"], "dataset": ["cora"]}, seeds=2)
    for cell in plan.cells:
        chosen = cell.config.method == "fedavg" and (cell.seed == 0 or cell.candidate == 1)
        if chosen or (cell.config.method == "local" and cell.candidate == 0):
            measures = {"test": 80.0 + cell.seed, "val": float(cell.candidate == 1), "seconds": 0.5, "upload_mb": 2.0}
            store_cell(store, cell, **measures)
    return store


def test_cells_count_where_all_candidates_were_compared(store: CellStore) -> None:
    found, warnings = read_results([store.into])
    assert list(found) == [NAME]
    done = [entry for entry in found[NAME].summary.entries if entry.by_seed]
    assert [(entry.at["method"], entry.by_seed) for entry in done] == [("FedAvg", {0: 80.0, 1: 81.0})]
    assert found[NAME].costs == {tuple(done[0].at.values()): {"seconds": 0.5, "upload_mb": 2.0}}
    assert (found[NAME].numbers, len(found[NAME].cells)) == (2, 2)
    assert warnings == [f"1 places of {NAME} in {store.into} are left out: not all of their candidates were run."]


def test_times_of_one_device_are_compared_and_stale_runs_are_counted(
    tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CellStore(tmp_path / "store")
    for cell in plan_study(NAME, {"method": ["local", "fedavg"], "dataset": ["cora"]}, seeds=3).cells:
        elsewhere = cell.config.method == "local" and cell.seed == 2
        facts = {"finished": 1.0, "device": "TPU" if elsewhere else "CPU", "versions": VERSIONS}
        facts |= {"measures": {"test": 80.0, "val": 1.0, "seconds": 9.0 if elsewhere else 0.5}}
        store.finish(cell, facts | {"config": {"method": cell.config.method}}, keep_models=True)
    found = read_results([store.into])[0][NAME]
    assert sorted(len(entry.by_seed) for entry in found.summary.entries if entry.by_seed) == [3, 3]
    assert list(found.costs.values()) == [{"seconds": 0.5}, {"seconds": 0.5}]
    assert found.stale == 0
    monkeypatch.setattr(methods()["local"], "compute_version", 2)
    found = read_results([store.into])[0][NAME]
    assert found.stale == 3
    path = tmp_path / "report.csv"
    path.write_text(to_csv(found.summary))
    again, _ = read_report(find_study(NAME), path)
    assert again is not None
    assert again.stale == 3


def test_of_cells_on_another_device_bytes_are_known_and_no_times(tmp_path: Path, data_folder: Path) -> None:
    store = CellStore(tmp_path / "store")
    for cell in plan_study(NAME, {"method": ["local", "fedavg", "fedprox"], "dataset": ["cora"]}, seeds=2).cells:
        device = "TPU" if cell.config.method == "local" else "CPU"
        facts = {"finished": 1.0, "device": device, "versions": VERSIONS}
        facts |= {"measures": {"test": 80.0, "val": 1.0, "seconds": 0.5, "upload_mb": 2.0}}
        store.finish(cell, facts | {"config": {"method": cell.config.method}}, keep_models=True)
    found = read_results([store.into])[0][NAME].costs
    here, elsewhere = {"seconds": 0.5, "upload_mb": 2.0}, {"upload_mb": 2.0}
    assert sorted(map(len, found.values())) == [1, 2, 2]
    assert all(costs == (elsewhere if "Local" in place else here) for place, costs in found.items())


def test_a_report_gives_what_its_cells_gave_and_the_larger_of_two_counts(store: CellStore, tmp_path: Path) -> None:
    found, _ = read_results([store.into])
    (tmp_path / NAME).mkdir()
    path = tmp_path / NAME / "report.csv"
    text = to_csv(found[NAME].summary)
    path.write_text(text)
    again, passed = read_report(find_study(NAME), path)
    assert again is not None
    assert passed == 0
    assert again.costs == found[NAME].costs
    mine, theirs = ([e for e in one.summary.entries if e.by_seed] for one in (again, found[NAME]))
    assert [(e.at, e.by_seed, e.verdict) for e in mine] == [(e.at, e.by_seed, e.verdict) for e in theirs]
    assert sum(e.published is not None for e in again.summary.entries) == 24
    path.write_text(text.replace("80 81", "80 81 82") + "Nobody,Cora,test\n")
    both, warnings = read_results([store.into, tmp_path])
    assert both[NAME].numbers == 3
    assert any("places that fedpub-table-8 does not have any more" in sentence for sentence in warnings)


def test_places_of_a_report_and_of_cells_are_joined(store: CellStore, tmp_path: Path) -> None:
    """What only one of them has is there; of a place that both have, what has more seeds; costs are of the larger one."""
    alone = read_results([store.into])[0][NAME]
    (tmp_path / NAME).mkdir()
    lines = to_csv(alone.summary).splitlines()
    place = lines.index(next(line for line in lines if "80 81" in line))
    filled = lines[place].split(",")
    there = {tuple(e.at.values()) for e in alone.summary.entries if e.by_seed}
    axes = next(list(at.values()) for at in alone.study.places() if tuple(at.values()) not in there)
    path = tmp_path / NAME / "report.csv"
    path.write_text("\n".join([lines[0], ",".join(axes + filled[len(axes) :])]))
    both = read_results([store.into, tmp_path])[0][NAME]
    assert both.numbers == alone.numbers + 2
    assert both.costs == alone.costs
    assert [cell.folder for cell in both.cells] == [cell.folder for cell in alone.cells]
    joined = {tuple(e.at.values()): e.by_seed for e in both.summary.entries if e.by_seed}
    assert joined[tuple(axes)] == {0: 80.0, 1: 81.0}
    path.write_text("\n".join([lines[0], lines[place].replace("80 81", "70")]))
    assert read_results([store.into, tmp_path])[0][NAME].numbers == alone.numbers
    path.write_text("\n".join([lines[0], lines[place].replace("80 81", "70 71 72")]))
    assert read_results([store.into, tmp_path])[0][NAME].numbers == 3


@pytest.mark.parametrize("text", ["\xff", "method,dataset,value,by_seed\nFedAvg,Cora,test,80 x\n", "a" * 200_000])
def test_a_report_that_is_none_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "report.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(FedquiltError, match=r"report\.csv|There are no results"):
        read_results([tmp_path])


def test_an_empty_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        FedquiltError, match=r"^There are no results in .*: no finished cells .* run or merge some first"
    ):
        read_results([tmp_path])
