"""A study as an HTML page: its tables, and the charts of the runs that count."""

from __future__ import annotations

from pathlib import Path

from fedquilt.reports.page.chart_data import read_page_run
from fedquilt.reports.page.data import HeaderCell, Page, PageCell, PageFacts, PageRun, PageTable
from fedquilt.studies.grids import SIGNS, Grid, GridCell, all_grids, heading
from fedquilt.studies.summary import Entry, Summary
from fedquilt.studies.writing import LEGEND, absences, provenance, verdict_sentences


def study_page(name: str, into: Path) -> Page:
    """The page of all that was run of a study."""
    from fedquilt.studies.reporting import command_of, gather

    return page_of(gather(name, into), command_of(name, None, None))


def page_of(summary: Summary, command: str) -> Page:
    """The page of a summary; `command` runs it again."""
    study = summary.study
    return Page(
        title=study.title,
        lead=f"The paper says: {study.claim}",
        notes=(*verdict_sentences(summary), *provenance(summary), *absences(summary)),
        tables=(*(_table(grid, first=place == 0) for place, grid in enumerate(all_grids(summary))), *_remarks(summary)),
        runs=tuple(_runs(summary)),
        facts=(PageFacts("To run it again", code=command),),
    )


def _table(grid: Grid, first: bool) -> PageTable:
    headers = (tuple(HeaderCell(text) for text in (grid.head, *grid.columns)),)
    rows = tuple((PageCell(label, tone="head"), *(_cell(cell) for cell in cells)) for label, cells in grid.rows)
    return PageTable(grid.title, LEGEND if first else "", headers, rows)


def _remarks(summary: Summary) -> tuple[PageTable, ...]:
    """What one should know about the protocol, if anything."""
    rows = tuple((PageCell(note),) for note in summary.study.notes)
    return (PageTable("Protocol", "", ((HeaderCell("What to know"),),), rows),) if rows else ()


def _cell(cell: GridCell) -> PageCell:
    # The page gives a verdict a sign of its own, but the best of a column has another one.
    sign = SIGNS.get(cell.verdict, "") if cell.best else ""
    note = " ".join(part for part in (cell.printed, cell.difference, sign) if part)
    return PageCell(cell.text, note, "best" if cell.best else cell.verdict)


def _setting(summary: Summary, entry: Entry) -> str:
    axes = (*summary.study.tables, *summary.study.columns)
    return ", ".join(heading(axis, entry.at[axis]) for axis in axes)


def _runs(summary: Summary) -> list[PageRun]:
    """The runs that count, a place each: what the rows are called, grouped by what the columns are."""
    if summary.study.of == "partition":
        return []
    first = next(iter(summary.study.values))
    return [
        read_page_run(
            [kept.folder for _, kept in sorted(entry.kept.items())],
            " / ".join(summary.row(entry.at)),
            _setting(summary, entry),
        )
        for entry in summary.of(first)
        if entry.kept
    ]
