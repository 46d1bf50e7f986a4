"""How a csv file is written, found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.tables import dialect
from fedquilt.graphs.tables.dialect import find_dialect
from fedquilt.graphs.tables.options import TableOptions


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"id,label,x\na,0,1\n", "commas, UTF-8"),
        (b"\xef\xbb\xbfid;label;x\na;0;1,5\n", "semicolons, UTF-8"),
        ("id\tlabel\tx\nä\t0\t1\n".encode("utf-16"), "tabs, UTF-16"),
        ("id;label;x\nä;0;1,5\nö;0;2,5\n".encode("latin-1"), "semicolons, Windows-1252 (Latin-1)"),
        ("id;label;x\nä;0;1,5\n".encode(), "semicolons, UTF-8"),
        (b"id|x\na|1,5\n", "vertical bars, UTF-8"),
        (b'id,label,"a;b;c;d"\na,0,"1;2;3"\nb,1,"1;2;3"\n', "commas, UTF-8"),
        (b"id,label,a;b\nx,0,1\ny,1,2\n", "commas, UTF-8"),
        (b"id\na\nb\n", "commas, UTF-8"),
        (b"", "commas, UTF-8"),
        (b"id;x\n" + b"a;1\n" * 50_000, "semicolons, UTF-8"),
    ],
)
def test_found(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "nodes.csv"
    path.write_bytes(content)
    assert find_dialect(path, TableOptions()).in_words == words


def test_options_come_first(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_bytes("a,b;c\nä,1;2\n".encode("cp1252"))
    assert find_dialect(path, TableOptions(separator=";")).separator == ";"
    assert find_dialect(path, TableOptions(separator="tab", encoding="latin-1")).separator == "\t"
    with pytest.raises(FedquiltError, match="is not text in utf-8; save it"):
        find_dialect(path, TableOptions(encoding="utf-8"))


def test_what_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "nodes.csv"
    for content, message in (
        (b"id,x\n\x81\xff,1\n", "is not text in UTF-8, UTF-16 or Latin-1"),
        (b"id,x\na\0b,1\n", "has NUL characters"),
        (b"\xff\xfea", "is not text"),
    ):
        path.write_bytes(content)
        with pytest.raises(FedquiltError, match=message):
            find_dialect(path, TableOptions())
    monkeypatch.setattr(dialect, "LONGEST_LINE", 1000)
    for content in ("x" * 2000, "id,x\n" + "y" * 600 + "y" * 900 + "\n"):
        path.write_text(content)
        with pytest.raises(FedquiltError, match="a line of more than 1,000 characters"):
            find_dialect(path, TableOptions())
    path.write_text(("x" * 100 + "\r") * 50)
    assert find_dialect(path, TableOptions()).separator == ","
