from __future__ import annotations

from pathlib import Path

from fedquilt.reports.page.build import page_html
from fedquilt.reports.page.run_pages import page_of_comparison, page_of_folder, page_of_folders, page_of_run
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


def test_several_folders_are_one_page(tmp_path: Path) -> None:
    first, second = write_run(tmp_path / "one", "fedavg"), write_run(tmp_path / "two", "local")
    page = page_of_folders([first, second])
    assert [run.label for run in page.runs] == ["fedavg", "local"]
    assert page.about.startswith("Trained: ") or page.about == ""
    # Nothing seals that they have the same clients, so nothing is said about which is better.
    assert "told apart" not in page.lead
    assert page_of_folders([first]).title.startswith("fedavg on ")


def test_a_graph_is_called_by_its_name_and_not_by_its_path(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "one", "fedavg", dataset="/home/someone/graphs/patients.npz")
    assert page_of_folder(folder).title.startswith("fedavg on patients, ")
