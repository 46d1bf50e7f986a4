from __future__ import annotations

from fedquilt.reports.page.build import page_html
from fedquilt.reports.page.data import HeaderCell, Page, PageCell, PageTable
from fedquilt.reports.page.markup import escape, notes_markup
from support.page_document import Elements


def test_tables_have_headers_over_several_columns_and_signs_beside_colours() -> None:
    headers = (
        (HeaderCell("Method", rowspan=2), HeaderCell("Cora", colspan=2)),
        (HeaderCell("5"), HeaderCell("10")),
    )
    rows = tuple(
        (PageCell(name, tone="head"), PageCell("80.00 ± 1.00", "paper 79.00", tone), PageCell("-", tone="muted"))
        for name, tone in (("a", "best"), ("b", "exceeded"), ("c", "reached"), ("d", "missed"))
    )
    text = page_html(Page("t", tables=(PageTable("Accuracy", "How to read it.", headers, rows),)))
    document = Elements(text)
    cells = document.all("th")
    assert cells[0] == {"scope": "col", "rowspan": "2"}
    assert cells[1] == {"scope": "colgroup", "colspan": "2", "class": "group"}
    assert cells[2] == {"scope": "col", "class": "number"}
    assert [cell["scope"] for cell in cells[4:]] == ["row"] * 4
    for sign, word in (("★", "best"), ("▲", "exceeded"), ("≈", "reached"), ("▼", "missed")):
        assert document.seen.count(sign) == 2  # in its cell and in the key
        assert f"({word})" in document.seen


def test_text_has_no_markup_and_no_marks_of_direction() -> None:
    assert escape("<b>\u202e\x1b\ud800") == r"&lt;b&gt;\u202e\u001b\ud800"
    assert r"\u202e" in notes_markup(["a\u202eb"])
