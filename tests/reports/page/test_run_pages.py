from __future__ import annotations

from pathlib import Path

from fedquilt.reports.page.build import page_html
from fedquilt.reports.page.run_pages import page_of_comparison, page_of_run
from fedquilt.reports.read_run import read_run
from support.page_document import Elements, data_of
from support.page_runs import write_run


def test_the_page_of_a_run_and_of_a_comparison(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, name, level=level) for name, level in (("fedavg", 60), ("quilt", 75))]
    (folders[0] / "seed-1" / "summary.json").unlink()
    page = page_of_comparison("cmp", [read_run(folder) for folder in folders])
    assert page.title == "cora, disjoint, 4 clients"
    assert page.lead.startswith("quilt has the best test accuracy, ")
    assert [run.label for run in page.runs] == ["fedavg", "quilt"]
    assert [cell.tone for cell in page.tables[0].rows[1][:2]] == ["head", "best"]
    assert page.facts[0].code.startswith("fedquilt compare --methods fedavg,quilt --dataset cora")
    one = page_of_run(read_run(folders[0]))
    assert one.title == "fedavg on cora, disjoint, 4 clients"
    assert not any(cell.tone == "best" for row in one.tables[0].rows for cell in row)
    seen = Elements(page_html(page)).seen
    assert "fedavg: Seed 1 is not done: 12 of 12 rounds so far." in seen
    assert str(tmp_path) not in page_html(page)


def test_runs_of_the_same_method_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, "quilt") for name in ("plain", "wide")]
    page = page_of_comparison("cmp", [read_run(folder) for folder in folders])
    assert [run.label for run in page.runs] == ["plain", "wide"]
    other = write_run(tmp_path / "other", "quilt", dataset="pubmed")
    page = page_of_comparison("cmp", [read_run(folders[0]), read_run(other)])
    assert page.title == "cmp"
    assert [run.label for run in page.runs] == ["quilt", "quilt"]
    assert data_of(page)["settings"] == ["cora, disjoint, 4 clients", "pubmed, disjoint, 4 clients"]
