"""The parts of the page that need no script: text, tables and facts, everything escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from fedquilt.common.printable import printable
from fedquilt.reports.names import EXCEEDED_SIGN, MISSED_SIGN, REACHED_SIGN
from fedquilt.reports.page.data import HeaderCell, PageCell, PageFacts, PageTable

# A sign for readers who do not see the colour, and a word for screen readers.
SIGNS = {
    "best": ("★", "best"),
    "exceeded": (EXCEEDED_SIGN, "exceeded"),
    "reached": (REACHED_SIGN, "reached"),
    "missed": (MISSED_SIGN, "missed"),
}
_NUMBER = re.compile(r"[-−+]?[\d.,]+(\s*[%x×]|\s*±\s*[\d.,]+|\s*\([^)]*\))*|-|–|—|failed|")


def escape(text: str) -> str:
    """Text as the page shows it: no markup, and nothing that changes the direction of what stands around it."""
    return html.escape(printable(text, lines=True))


def notes_markup(notes: Sequence[str]) -> str:
    """The notes as a list; "" where there are none."""
    if not notes:
        return ""
    return f'<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in notes)}</ul>'


def table_markup(table: PageTable, number: int) -> str:
    """A table in a frame that scrolls sideways where the table is too wide."""
    numeric = _numeric_columns(table)
    name = f"table-{number}"
    tones = {cell.tone for row in table.rows for cell in row}
    key = "".join(
        f'<li class="tone-{tone}"><span class="sign" aria-hidden="true">{sign}</span> {word}</li>'
        for tone, (sign, word) in SIGNS.items()
        if tone in tones
    )
    head = _header(table, numeric)
    body = "".join(
        f"<tr>{''.join(_cell(cell, numeric[i] if i < len(numeric) else False) for i, cell in enumerate(row))}</tr>"
        for row in table.rows
    )
    caption = f'<p class="caption">{escape(table.caption)}</p>' if table.caption else ""
    title = f'<h3 id="{name}">{escape(table.title)}</h3>' if table.title else ""
    if table.folded:
        title = f"<summary>{title}</summary>"
    name = name if title else "results-title"
    whole = (
        f"{title}{caption}"
        f'<div class="scroll" role="region" aria-labelledby="{name}" tabindex="0">'
        f'<table aria-labelledby="{name}"><thead>{head}</thead><tbody>{body}</tbody></table></div>'
        + (f'<ul class="key" aria-label="Signs">{key}</ul>' if key else "")
    )
    return f'<figure class="table">{f"<details>{whole}</details>" if table.folded else whole}</figure>'


def facts_markup(facts: Sequence[PageFacts]) -> str:
    """The groups of names and values."""
    parts = []
    for group in facts:
        pairs = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in group.pairs)
        code = f'<pre class="code" tabindex="0"><code>{escape(group.code)}</code></pre>' if group.code else ""
        listed = f"<dl>{pairs}</dl>" if pairs else ""
        parts.append(f'<section class="facts"><h3>{escape(group.title)}</h3>{listed}{code}</section>')
    return "".join(parts)


def _header(table: PageTable, numeric: Sequence[bool]) -> str:
    """The header's rows; a cell over a column of numbers is aligned to the right as they are."""
    taken: set[tuple[int, int]] = set()  # positions that a spanning cell above or before covers
    rows = []
    for row, header in enumerate(table.headers):
        cells, column = [], 0
        for cell in header:
            while (row, column) in taken:
                column += 1
            taken |= {(row + down, column + right) for down in range(cell.rowspan) for right in range(cell.colspan)}
            right = cell.colspan == 1 and column < len(numeric) and numeric[column]
            cells.append(_header_cell(cell, "group" if cell.colspan > 1 else "number" if right else ""))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return "".join(rows)


def _header_cell(cell: HeaderCell, kind: str) -> str:
    spans = (("colspan", cell.colspan), ("rowspan", cell.rowspan))
    more = "".join(f' {name}="{span}"' for name, span in spans if span > 1) + (f' class="{kind}"' if kind else "")
    return f'<th scope="{"colgroup" if cell.colspan > 1 else "col"}"{more}>{escape(cell.text)}</th>'


def _cell(cell: PageCell, numeric: bool) -> str:
    sign, word = SIGNS.get(cell.tone, ("", ""))
    text = escape(cell.text)
    if sign:
        text = f'<span class="sign" aria-hidden="true">{sign}</span> {text}<span class="unseen"> ({word})</span>'
    if cell.note:
        text += f'<small class="note">{escape(cell.note)}</small>'
    classes = [name for name in (f"tone-{cell.tone}" if cell.tone else "", "number" if numeric else "") if name]
    kind = f' class="{" ".join(classes)}"' if classes else ""
    return f'<th scope="row"{kind}>{text}</th>' if cell.tone == "head" else f"<td{kind}>{text}</td>"


def _numeric_columns(table: PageTable) -> list[bool]:
    """Which columns hold numbers; they are aligned to the right."""
    columns = max(map(len, table.rows), default=0)
    out = []
    for place in range(columns):
        cells = [row[place] for row in table.rows if place < len(row)]
        texts = [cell.text.strip() for cell in cells if cell.tone != "head"]
        out.append(any(texts) and all(_NUMBER.fullmatch(text) for text in texts))
    return out
