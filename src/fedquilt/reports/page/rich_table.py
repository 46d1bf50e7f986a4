"""Convert a table of the terminal to a table of the page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.table import Table
from rich.text import Text

from fedquilt.reports.page.data import HeaderCell, PageCell, PageTable
from fedquilt.reports.tables import NOTE


def page_table(
    table: Table, title: str | None = None, caption: str = "", bold: str = "best", folded: bool = False
) -> PageTable:
    """Convert a rich table. Its first column names the rows; bold cells get the tone `bold`.

    `title` replaces the table's own title; "" means no title. A last column called Note, which would make the table too wide
    for a page, becomes a small line under the names of the rows: the beginning of each note.
    """
    columns = list(table.columns)
    notes = [_beginning(str(cell)) for cell in columns[-1].cells] if str(columns[-1].header) == NOTE else []
    columns = columns[:-1] if notes else columns
    headers = tuple(HeaderCell(str(column.header)) for column in columns)
    cells = [list(column.cells) for column in columns]
    rows = tuple(
        tuple(_cell(cell, "head" if place == 0 else "", bold) for place, cell in enumerate(row))
        for row in zip(*cells, strict=True)
    )
    if notes:
        rows = tuple((replace(row[0], note=note), *row[1:]) for row, note in zip(rows, notes, strict=True))
    return PageTable(str(table.title or "") if title is None else title, caption, (headers,), rows, folded)


def _beginning(note: str) -> str:
    """A note in brief: all of "retried: lr=0.001 clip=1", and of "Training diverged: no finite ..." the first clause."""
    return note if note.startswith("retried") else note.partition(";")[0].partition(":")[0]


def _cell(cell: Any, tone: str, bold: str) -> PageCell:
    if not tone and isinstance(cell, Text) and cell.style == "bold":
        tone = bold
    return PageCell(str(cell), tone=tone)
