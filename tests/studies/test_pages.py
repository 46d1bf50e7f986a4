"""The HTML page of a study."""

from __future__ import annotations

from pathlib import Path

from fedquilt.reports.page.build import write_page
from fedquilt.studies.gather import gather
from fedquilt.studies.pages import page_of, study_page
from fedquilt.studies.plan import plan_study
from fedquilt.studies.tables import all_tables


def test_the_page_has_the_tables_and_the_runs_that_count(ran_study: Path, tmp_path: Path) -> None:
    summary = gather(plan_study("tiny.yaml"), Path("studies"))
    page = study_page("tiny.yaml", Path("studies"))
    tables = all_tables(summary)
    assert [shown.title for shown in page.tables[: len(tables)]] == [table.title for table in tables]
    for shown, table in zip(page.tables[: len(tables)], tables, strict=True):
        assert {len(row) for row in shown.rows} == {1 + len(table.columns)} == {len(shown.headers[0])}
        assert [row[0].text for row in shown.rows] == [label for label, _ in table.rows]
    assert page.tables[0].caption
    assert not page.tables[1].caption
    assert len(page.runs) == 4  # two methods with two numbers of clients
    assert page.lead == "The paper says: Nobody claims anything."
    assert any(fact.code == "fedquilt study run tiny.yaml" for fact in page.facts)
    write_page(page, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Tiny, Table 1: three methods" in text
    assert "A note." in text


def test_a_page_about_cuts_has_no_runs(ran_study: Path) -> None:
    summary = gather(plan_study("tiny.yaml"), Path("studies"))
    cuts = type(summary)(summary.study.model_copy(update={"of": "partition"}), summary.entries, [], {}, [], {}, {})
    assert page_of(cuts, "x").runs == ()
