"""Tables of metrics and classes, from run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.table import Table

from fedquilt.errors import FedquiltError
from fedquilt.reports import confusion as module
from fedquilt.reports.confusion import class_table, confusion_of, figures_table, matrix_table, run_tables
from fedquilt.reports.read_run import read_run
from support.named_runs import named_run
from support.page_runs import write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("confusion")
    named_run(folder, seeds=[0, 1])
    return folder / "run"


def cells(table: Table) -> list[list[str]]:
    return [[str(cell) for cell in row] for row in zip(*(column.cells for column in table.columns), strict=True)]


def test_counts_are_summed_over_seeds_and_clients(folder: Path) -> None:
    run = read_run(folder)
    whole, each = confusion_of(run), [confusion_of(run, client) for client in range(3)]
    assert whole is not None
    assert whole.counts is not None
    assert whole.names == ("ill", "unsure", "well")
    assert whole.whose == "3 clients, 2 seeds"
    assert np.array_equal(whole.counts, sum(one.counts for one in each if one is not None))  # type: ignore[arg-type]
    assert each[1] is not None
    assert each[1].whose == "client 1, 2 seeds"
    stored = [seed.summary["confusion"] for seed in run.seeds if seed.summary]
    assert np.array_equal(whole.counts, np.sum([one["counts"] for one in stored], axis=0))
    assert whole.right.tolist() == whole.counts.diagonal().tolist()


def test_tables_have_class_names_recall_and_precision(folder: Path) -> None:
    whole = confusion_of(read_run(folder))
    assert whole is not None
    assert whole.counts is not None
    rows, matrix = cells(class_table(whole)), matrix_table(whole)
    assert [row[0] for row in rows] == ["ill", "unsure", "well"]
    assert matrix is not None
    assert [str(column.header) for column in matrix.columns][1:] == ["ill", "unsure", "well"]
    assert [[int(cell) for cell in row[1:]] for row in cells(matrix)] == whole.counts.tolist()
    for row, counts, right in zip(rows, whole.counts, whole.right, strict=True):
        assert row[1] == str(counts.sum())
        assert row[3] == f"{100 * right / counts.sum():.1f}"


def test_all_metrics_of_one_run_and_of_several() -> None:
    def result(method: str, accuracy: float, loss: float | None, seeds: int = 1) -> dict[str, Any]:
        values = {"accuracy": accuracy, "log-loss": loss}
        figures = {name: {"test_mean": value, "test_std": 1.0} for name, value in values.items()}
        return {"method": method, "seeds": [{}] * seeds, "figures": figures}

    one = figures_table([result("a", 80.04, 0.5, seeds=2)])
    assert one is not None
    assert cells(one) == [["Accuracy (%)", "80.0 ± 1.0", "higher"], ["Log-loss", "0.500 ± 1.000", "lower"]]
    both = figures_table([result("a", 80, 0.5), result("b", 70, 0.25), result("c", 60, None), {"method": "old"}])
    assert both is not None
    assert [str(column.header) for column in both.columns] == ["Method", "Accuracy", "Log-loss ↓"]
    assert cells(both) == [["a", "80.0", "0.500"], ["b", "70.0", "0.250"], ["c", "60.0", "-"]]
    bold = [[cell.style == "bold" for cell in column.cells] for column in both.columns]
    assert bold[1:] == [[True, False, False], [False, True, False]]
    assert figures_table([{"method": "old"}]) is None


def test_very_many_classes_are_shown_in_part(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(module, "MOST_SHOWN", 2)
    whole = confusion_of(read_run(folder))
    assert whole is not None
    assert len(cells(class_table(whole))) == 2
    assert whole.left_out == "The 1 rarest classes are left out."


def test_a_run_of_an_earlier_version_has_no_such_tables(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "old"))
    assert run_tables(run) == []
    assert confusion_of(run) is None
    with pytest.raises(FedquiltError, match="stored no confusion matrix"):
        confusion_of(run, 0)


def test_a_client_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(FedquiltError, match="no client 3; choose one of 0 to 2"):
        run_tables(read_run(folder), 3)
    assert len(run_tables(read_run(folder), 2)) == 2
    assert len(run_tables(read_run(folder))) == 3
