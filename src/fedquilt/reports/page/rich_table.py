"""Convert a table of the terminal to a table of the page."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from fedquilt.reports.page.data import HeaderCell, PageCell, PageTable


def page_table(
    table: Table, title: str | None = None, caption: str = "", bold: str = "best", folded: bool = False
) -> PageTable:
    """Convert a rich table. Its first column names the rows; bold cells get the tone `bold`.

    `title` replaces the table's own title; "" means no title.
    """
    columns = list(table.columns)
    headers = tuple(HeaderCell(str(column.header)) for column in columns)
    cells = [list(column.cells) for column in columns]
    rows = tuple(
        tuple(_cell(cell, "head" if place == 0 else "", bold) for place, cell in enumerate(row))
        for row in zip(*cells, strict=True)
    )
    return PageTable(str(table.title or "") if title is None else title, caption, (headers,), rows, folded)


def _cell(cell: Any, tone: str, bold: str) -> PageCell:
    if not tone and isinstance(cell, Text) and cell.style == "bold":
        tone = bold
    return PageCell(str(cell), tone=tone)
