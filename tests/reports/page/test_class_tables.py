"""The page's tables about classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.reports.page import class_tables as module
from fedquilt.reports.page.class_tables import metric_tables, run_class_tables
from fedquilt.reports.page.markup import table_markup
from fedquilt.reports.page.run_pages import page_of_folder
from fedquilt.reports.read_run import read_run
from support.named_runs import named_run
from support.page_runs import write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    named_run(folder)
    return folder / "run"


def test_a_run_shows_metrics_classes_and_matrices_with_names(folder: Path) -> None:
    tables = run_class_tables(read_run(folder))
    assert [table.title for table in tables] == [
        "All metrics",
        "Classes (3 clients, 1 seed)",
        "Confusion matrix (3 clients, 1 seed)",
        "Classes, client by client",
        *(f"Confusion matrix (client {m}, 1 seed)" for m in range(3)),
    ]
    assert [table.folded for table in tables] == [False] * 3 + [True] * 4
    matrix = tables[2]
    assert [cell.text for cell in matrix.headers[0]] == ["True \\ predicted", "ill", "unsure", "well"]
    assert all(row[place].tone == "diagonal" for place, row in enumerate(matrix.rows, start=1))
    clients = tables[3]
    assert [row[0].text for row in clients.rows] == ["client 0", "client 1", "client 2"]
    assert [cell.text for cell in clients.headers[0]][-3:] == ["recall ill", "recall unsure", "recall well"]
    assert page_of_folder(folder).tables[1:] == tables
    assert page_of_folder(folder).runs[0].seeds[0].holdings.classes == ("ill", "unsure", "well")  # type: ignore[union-attr]


def test_a_folded_table_is_opened_by_its_title(folder: Path) -> None:
    tables = run_class_tables(read_run(folder))
    assert '<details><summary><h3 id="table-3">Classes, client by client</h3></summary>' in table_markup(tables[3], 3)
    assert "<details>" not in table_markup(tables[2], 2)


def test_many_clients_have_no_matrices_of_their_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_MATRICES", 2)
    monkeypatch.setattr(module, "MOST_CLIENTS", 2)
    tables = run_class_tables(read_run(folder))
    assert tables[-1].title == "Classes, client by client"
    assert len(tables[-1].rows) == 2
    assert "The first 2 of 3 clients." in tables[-1].caption


def test_runs_without_figures_have_none(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "old"))
    assert run_class_tables(run) == ()
    assert metric_tables([run.result or {}]) == ()


def test_deviations_stand_under_the_means_so_that_all_metrics_fit() -> None:
    results = [
        {"method": name, "seeds": [{}, {}], "figures": {"auc": {"test_mean": 80.0, "test_std": 1.5}}} for name in "ab"
    ]
    (table,) = metric_tables(results)
    assert (table.rows[0][1].text, table.rows[0][1].note, table.rows[0][1].tone) == ("80.0", "± 1.5", "best")
    assert "lower is better" in table.caption
