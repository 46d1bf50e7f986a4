"""What was read from tables, in words."""

from __future__ import annotations

from pathlib import Path

from fedquilt.graphs.tables.read import read_tables_fully
from fedquilt.graphs.tables.summary import column_rows, sentences


def test_columns_and_sentences(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(
        "id,label,split,client,town,note\na,ill,train,north,Rome,\nb,well,val,south,Oslo,\nc,,test,north,Rome,\n,,,,,\n"
    )
    (tmp_path / "edges.csv").write_text("source,target,kind\na,b,x\nb,a,x\nb,c,y\n")
    tables = read_tables_fully(tmp_path)
    assert column_rows(tables) == [
        ("id", "id", "3 distinct names of nodes"),
        ("label", "label", "2 classes: ill 1, well 1; 1 unlabelled"),
        ("split", "split", "1 train, 1 val, 1 test"),
        ("client", "client", "2 clients: north 2, south 1"),
        ("town", "category", "2 features 'town=...'"),
        ("note", "left out", "no row has a value"),
    ]
    assert sentences(tables) == [
        "nodes.csv: commas, UTF-8.",
        "1 empty row left out.",
        "2 undirected edges of 3 rows: 1 row named a pair again.",
        "Not read of the edges: kind.",
    ]
