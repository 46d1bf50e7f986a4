from __future__ import annotations

from rich.table import Table
from rich.text import Text

from fedquilt.reports.page.rich_table import page_table


def test_a_rich_table_keeps_its_texts_and_what_is_bold() -> None:
    table = Table("Method", "Test", title="cora")
    table.add_row(Text("quilt", "bold"), Text("80.1", "bold"))
    table.add_row("local", "70.2")
    page = page_table(table, caption="How to read it.")
    assert (page.title, page.caption) == ("cora", "How to read it.")
    assert [cell.text for cell in page.headers[0]] == ["Method", "Test"]
    assert [[(cell.text, cell.tone) for cell in row] for row in page.rows] == [
        [("quilt", "head"), ("80.1", "best")],
        [("local", "head"), ("70.2", "")],
    ]
    assert page_table(table, "", bold="").title == ""
    assert page_table(table, "", bold="").rows[0][1].tone == ""
