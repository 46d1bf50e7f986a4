"""The HTML page and the whole report of a study, gathered from what is kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from fedquilt.reports.page.build import write_page
from fedquilt.studies import runner
from fedquilt.studies.grids import all_grids
from fedquilt.studies.pages import page_of, study_page
from fedquilt.studies.reporting import command_of, gather, write_report
from fedquilt.studies.runner import run_study
from fedquilt.studies.spec import find_study
from fedquilt.studies.store import CellStore
from support.tiny_studies import PUBLISHED, Inline, cells_of, no_network, write_study


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A study that was run, with a candidate that fails, seen from its folder."""
    folder = tmp_path_factory.mktemp("page")
    axes = {
        "method": [
            {"label": "Local", "method": "local"},
            {"label": "FED-PUB", "method": "fedpub", "candidates": [{"lr": 0.01}, {"lr": 1e30}]},
            {"label": "FedSage+", "method": "fedsageplus"},
        ],
        "clients": [2, 3],
    }
    write_study(folder, axes=axes, published=PUBLISHED, notes=["A note."], values={"test": "Test (%)", "test@2": "Two"})
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(runner, "_Worker", Inline)
        study = find_study("tiny.yaml")
        run_study(study, cells_of(study), CellStore(Path("studies")))
    return SimpleNamespace(folder=folder)


@pytest.fixture
def there(ran: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(ran.folder)
    return ran.folder


def test_a_report_is_written_in_all_its_forms_without_absolute_paths(there: Path, tmp_path: Path) -> None:
    summary = gather("tiny.yaml", Path("studies"))
    written = write_report(summary, command_of("tiny.yaml", None, None), tmp_path / "out")
    assert [path.name for path in written] == ["report.md", "report.csv", "report.tex", "report.html"]
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert str(there) not in text, path
        assert "FED-PUB" in text
    assert "    fedquilt study run tiny.yaml\n" in written[0].read_text()
    assert "methods that are not in fedquilt yet (fedsageplus)" in written[0].read_text()
    again = write_report(summary, command_of("tiny.yaml", None, None), tmp_path / "again")
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]


def test_the_page_has_the_tables_and_the_runs_that_count(there: Path, tmp_path: Path) -> None:
    summary = gather("tiny.yaml", Path("studies"))
    page = study_page("tiny.yaml", Path("studies"))
    grids = all_grids(summary)
    assert [table.title for table in page.tables[: len(grids)]] == [grid.title for grid in grids]
    for table, grid in zip(page.tables[: len(grids)], grids, strict=True):
        assert {len(row) for row in table.rows} == {1 + len(grid.columns)} == {len(table.headers[0])}
        assert [row[0].text for row in table.rows] == [label for label, _ in grid.rows]
    assert page.tables[0].caption
    assert not page.tables[1].caption
    assert len(page.runs) == 4  # two methods with two numbers of clients
    assert page.lead == "The paper says: Nobody claims anything."
    assert any(fact.code == "fedquilt study run tiny.yaml" for fact in page.facts)
    write_page(page, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Tiny, Table 1: three methods" in text
    assert "A note." in text


def test_a_page_about_cuts_has_no_runs(there: Path) -> None:
    summary = gather("tiny.yaml", Path("studies"))
    cuts = type(summary)(summary.study.model_copy(update={"of": "partition"}), summary.entries, [], {}, [], {}, {})
    assert page_of(cuts, "x").runs == ()


def test_gathering_counts_seeds_that_were_begun_and_names_each_absence_once(
    there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_network(monkeypatch)
    summary = gather("tiny.yaml", Path("studies"))
    assert (summary.seeds, summary.done) == (2, (8, 8))
    assert [entry.settings for entry in summary.of("test") if entry.at["method"] == "FED-PUB"] == [{"lr": 0.01}] * 2
    assert sorted(summary.failed) == [f"FED-PUB, {clients} (lr=1e+30), seed 0" for clients in (2, 3)]
    assert len(summary.missing) == 2
    part = gather("tiny.yaml", Path("studies"), {"method": ["fedpub"]}, seeds=1)
    assert [len(entry.by_seed) for entry in part.of("test")] == [1, 1]
    assert part.missing == []
    assert [p.mean for p in part.averages] == [70.0]  # all clients with printed numbers are in it
    assert gather("tiny.yaml", Path("studies"), {"clients": ["3"]}).averages == []
    elsewhere = gather("tiny.yaml", Path("nowhere"))
    assert not any(entry.by_seed for entry in elsewhere.entries)


def test_a_method_that_is_not_here_on_a_graph_that_is_not_here_is_missing_once(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_network(monkeypatch)
    axes = {"method": ["local", {"label": "X", "method": "fedsageplus"}], "dataset": ["cora", "communities-3"]}
    name = write_study(elsewhere, axes=axes, columns=["dataset"], options={"clients": 2})
    places = [tuple(one.at.values()) for one in gather(name, elsewhere / "studies").missing]
    assert sorted(places) == [("X", "communities-3"), ("X", "cora"), ("local", "cora")]


def test_the_value_after_some_rounds_is_in_the_summary(there: Path) -> None:
    summary = gather("tiny.yaml", Path("studies"))
    found = [entry for entry in summary.of("test@2") if entry.at["method"] == "Local"]
    assert all(len(entry.by_seed) == 2 for entry in found)


@pytest.mark.parametrize(
    ("only", "seeds", "command"),
    [
        (None, None, "fedquilt study run x"),
        ({"a": ["b", "c"], "clients": ["2"]}, 3, "fedquilt study run x --only a=b,c,clients=2 --seeds 3"),
        ({"method": ["Fed Pub"]}, None, "fedquilt study run x --only 'method=Fed Pub'"),
    ],
)  # fmt: skip
def test_the_command_that_runs_it_again(only: dict[str, list[str]] | None, seeds: int | None, command: str) -> None:
    assert command_of("x", only, seeds) == command
