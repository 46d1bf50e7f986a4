"""The HTML page of a study: its tables, and charts of the runs with the selected settings."""

from __future__ import annotations

from pathlib import Path

from fedquilt.reports.page.chart_data import read_page_run
from fedquilt.reports.page.data import HeaderCell, Page, PageCell, PageFacts, PageRun, PageTable
from fedquilt.studies.gather import gather
from fedquilt.studies.plan import plan_study
from fedquilt.studies.sentences import absences, legend, provenance, verdict_sentences
from fedquilt.studies.summary import Entry, Summary
from fedquilt.studies.tables import SIGNS, ReportTable, TableEntry, all_tables, heading


def study_page(name: str, into: Path) -> Page:
    """The page of a whole study: all its cells that are done."""
    plan = plan_study(name)
    return page_of(gather(plan, into), plan.command)


def page_of(summary: Summary, command: str) -> Page:
    """The page of a summary; `command` runs the study again."""
    study = summary.study
    return Page(
        title=study.title,
        lead=study.lead,
        notes=(*verdict_sentences(summary), *provenance(summary), *absences(summary)),
        tables=(
            *(_table(table, legend(summary) if place == 0 else "") for place, table in enumerate(all_tables(summary))),
            *_notes(summary),
        ),
        runs=tuple(_runs(summary)),
        facts=(PageFacts("To run it again", code=command),),
    )


def _table(table: ReportTable, lead: str) -> PageTable:
    headers = (tuple(HeaderCell(text) for text in (table.head, *table.columns)),)
    rows = tuple((PageCell(label, tone="head"), *map(_page_entry, entries)) for label, entries in table.rows)
    return PageTable(table.title, lead, headers, rows)


def _notes(summary: Summary) -> tuple[PageTable, ...]:
    """The study's notes on its protocol as a table; none where it has no notes."""
    rows = tuple((PageCell(note),) for note in summary.study.notes)
    return (PageTable("Protocol", "", ((HeaderCell("What to know"),),), rows),) if rows else ()


def _page_entry(entry: TableEntry) -> PageCell:
    # The page has a sign for each verdict and another one for the best of a column, which hides the verdict's.
    sign = SIGNS.get(entry.verdict, "") if entry.best else ""
    note = " ".join(part for part in (entry.printed, entry.difference, sign) if part)
    return PageCell(entry.text, note, "best" if entry.best else entry.verdict)


def _setting(summary: Summary, entry: Entry) -> str:
    axes = (*summary.study.tables, *summary.study.columns)
    return ", ".join(heading(axis, entry.at[axis]) for axis in axes)


def _runs(summary: Summary) -> list[PageRun]:
    """One run for each place where something is done, named by its row and grouped by its column."""
    if summary.study.of == "partition":
        return []
    first = next(iter(summary.study.values))
    return [
        read_page_run(
            folders,
            " / ".join(summary.row(entry.at)),
            _setting(summary, entry),
        )
        for entry in summary.of(first)
        # Cells that others gave without their metrics have no run to draw.
        if (
            folders := [
                cell.folder for _, cell in sorted(entry.cells.items()) if (cell.folder / "config.json").exists()
            ]
        )
    ]
