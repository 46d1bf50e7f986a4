"""The cells of csv files: the same by pyarrow and by Python's csv module."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.tables import parse
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.parse import read_cells
from fedquilt.graphs.tables.problems import Problems
from support.messy_tables import write_messy


@pytest.fixture(params=["pyarrow", "csv"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pyarrow":
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(parse, "_has_pyarrow", lambda: request.param == "pyarrow")
    return request.param


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        ("id,x\na,1\nb,2\n", [["a", "b"], ["1", "2"]], [2, 3]),
        ("id , x\r\n a,1 \r\n\r\n,\r\nb,2", [["a", "b"], ["1", "2"]], [2, 5]),
        ('id,x\n"a\nb",1\n"c, ""d""",2\n', [["a\nb", 'c, "d"'], ["1", "2"]], [3, 4]),
        ("\ufeffid,x\ra,1\rb,2\r", [["a", "b"], ["1", "2"]], [2, 3]),
        ("id,x\n", [[], []], []),
        ("id\na\n\nb\n", [["a", "b"]], [2, 4]),
        ("1,2\n3,4\n", [["3"], ["4"]], [2]),
    ],
)
def test_cells_and_lines(tmp_path: Path, reader: str, text: str, columns: list[list[str]], lines: list[int]) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(text, encoding="utf-8", newline="")
    problems = Problems(path)
    table = read_cells(path, TableOptions(), problems)
    assert not problems
    assert [table.column(number) for number in range(len(table.header))] == columns
    assert table.rows.tolist() == lines


def test_rows_of_another_length_are_problems_with_their_lines(tmp_path: Path, reader: str) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text('id,x\na,1\n"b\nb",2,3\n\nc\nd,4\n')
    problems = Problems(tmp_path)
    table = read_cells(path, TableOptions(), problems)
    assert table.column(0) == ["a", "d"]
    assert table.rows.tolist() == [2, 7]
    assert table.refused == {"b\nb", "2", "3", "c"}
    with pytest.raises(FedquiltError) as caught:
        problems.raise_any()
    assert [line.split(" columns")[0].strip() for line in caught.value.details] == [
        "nodes.csv, line 4: it has 3",
        "nodes.csv, line 6: it has 1",
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings(tmp_path: Path, reader: str, encoding: str) -> None:
    path = tmp_path / "nodes.csv"
    path.write_bytes("Größe;Stadt\n1,5;Köln\n".encode(encoding))
    table = read_cells(path, TableOptions(), Problems(path))
    assert (table.header, table.column(1)) == (["Größe", "Stadt"], ["Köln"])


def test_messy_tables_are_the_same_by_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    path = write_messy(tmp_path / "mine", wrong=True) / "nodes.csv"
    found = []
    for has in (True, False):
        monkeypatch.setattr(parse, "_has_pyarrow", lambda has=has: has)
        monkeypatch.setattr(parse, "_CELLS", 20)  # several chunks
        table = read_cells(path, TableOptions(), Problems(path))
        columns = [table.column(number) for number in range(len(table.header))]
        found.append((table.header, columns, table.rows.tolist(), table.empty, table.refused, table.dialect))
    assert found[0] == found[1]


def test_a_very_wide_table_is_read_by_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "read_csv", None)
    monkeypatch.setattr(parse, "_WIDEST_BY_PYARROW", 3)
    (tmp_path / "nodes.csv").write_text("a,b,c,d\n1,2,3,4\n")
    assert read_cells(tmp_path / "nodes.csv", TableOptions(), Problems(tmp_path)).column(3) == ["4"]


def test_a_table_over_the_limit_is_refused(tmp_path: Path, reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nodes.csv").write_text("id,x\n" + "abc,1\n" * 1000)
    monkeypatch.setenv("FEDQUILT_READ_LIMIT", "50K")
    with pytest.raises(FedquiltError, match=r"nodes\.csv is too large"):
        read_cells(tmp_path / "nodes.csv", TableOptions(), Problems(tmp_path))
