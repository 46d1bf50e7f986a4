"""A graph from messy tables, and files that are named themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError, ProblemsError
from fedquilt.graphs.npz import read_npz, write_npz
from fedquilt.graphs.tables import parse
from fedquilt.graphs.tables.read import is_table, read_tables, read_tables_fully
from support.messy_tables import HEADER, ROWS, write_messy

FEATURES = (
    *("Alter", "Alter:missing", "Größe", "CRP", "CRP:missing", "Raucher", "Raucher:missing"),
    *("Stadt=Düsseldorf", "Stadt=Köln", "Stadt=Münster", "Stadt:missing"),
)


@pytest.mark.parametrize("has_pyarrow", [True, False])
def test_messy_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_pyarrow: bool) -> None:
    if has_pyarrow:
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(parse, "_has_pyarrow", lambda: has_pyarrow)
    found = read_tables_fully(write_messy(tmp_path / "mine"))
    graph = found.graph
    assert graph.feature_names == FEATURES == graph.encoding.feature_names
    assert graph.ids.tolist() == [f"p0{n}" for n in range(1, 9)]
    assert (graph.y.tolist(), graph.class_names) == ([0, 1, 0, 1, -1, 0, 1, 0], ("gesund", "krank"))
    columns = dict(zip(FEATURES, graph.x.T.tolist(), strict=True))
    assert columns["Alter"] == pytest.approx([31, 67, 45, 333 / 7, 52, 29, 71, 38])
    assert columns["Alter:missing"] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert columns["Größe"] == pytest.approx([1.82, 1.65, 1.7, 1.71, 1.9, 1.6, 1.75, 1.68])
    assert columns["CRP"][2] == 1204.5
    assert columns["Raucher"] == pytest.approx([0, 1, 0, 1, 0, 3 / 7, 1, 0])
    assert columns["Stadt=Köln"] == [1, 0, 1, 0, 1, 0, 0, 1]
    assert columns["Stadt:missing"] == [0, 0, 0, 0, 0, 1, 0, 0]
    assert graph.edges.tolist() == [[0, 1, 2, 3, 4, 6], [1, 2, 3, 4, 5, 7]]
    assert (found.edges.repeated, found.edges.loops, found.empty) == (1, 1, 1)
    assert found.edges.weights.tolist() == [3, 1, 1.5, 2, 1, 1, 9, 1]
    assert found.found == {"nodes.csv": "semicolons, Windows-1252 (Latin-1), decimal commas"}


def test_all_problems_at_once_with_their_lines(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError) as caught:
        read_tables(write_messy(tmp_path / "mine", wrong=True))
    text = str(caught.value)
    for part in (
        "line 12: 'vierzig' in the column 'Alter' is not a number",
        "line 13: it has 4 columns but the header has 9",
        "line 14: the id 'p03' is that of line 4 too",
        "line 15: it has no id",
        "line 16: '1.77' in the column 'Größe' is not a number (the table's decimal sign is ',')",
        "edges.csv, line 10: an edge to 'p99'",
    ):
        assert part in text
    with pytest.raises(FedquiltError, match="line 2: the column 'Aufnahme' has dates"):
        read_tables(
            write_messy(tmp_path / "dates", options="id: Patient\nlabel: Diagnose\nsource: von\ntarget: nach\n")
        )
    with pytest.raises(ProblemsError, match=r"no column 'id' .*such as 'id: Patient'"):
        read_tables(write_messy(tmp_path / "unnamed", options=None))


def test_a_new_table_is_made_to_the_features_of_the_old_one(tmp_path: Path) -> None:
    graph = read_tables(write_messy(tmp_path / "mine"))
    write_npz(graph, tmp_path / "mine.npz")
    encoding = read_npz(tmp_path / "mine.npz").encoding
    assert encoding == graph.encoding
    # The same table without labels, in points and commas, with its columns in another order: the same features.
    new = tmp_path / "new.csv"
    rows = [row.split(";") for row in [HEADER, *ROWS] if row.count(";") == 8 and row[0] != ";"]
    order = [6, 0, 5, 4, 3, 2]
    lines = [",".join(row[at].replace(".", "").replace(",", ".") for at in order) for row in rows]
    new.write_text("\n".join(lines), encoding="utf-8")
    again = read_tables(new, labelled=False, encoding=encoding)
    same = [n for n, name in enumerate(graph.ids.tolist()) if name in again.ids.tolist()]
    assert len(same) == 7
    assert np.array_equal(again.x, graph.x[same])
    assert again.feature_names == graph.feature_names
    new.write_text("Patient;Alter;Größe;CRP;Raucher;Stadt\nq1;;;1,5;yes;Rom\n", encoding="utf-8")
    x = dict(zip(FEATURES, read_tables(new, labelled=False, encoding=encoding).x[0].tolist(), strict=True))
    assert x["Alter"] == pytest.approx(333 / 7)
    assert x["Größe"] == pytest.approx(np.mean([1.82, 1.65, 1.7, 1.71, 1.9, 1.6, 1.75, 1.68]))
    assert (x["Alter:missing"], x["Stadt=Köln"], x["Stadt:missing"]) == (1, 0, 0)


def test_a_table_that_is_named_itself(tmp_path: Path) -> None:
    (tmp_path / "people.tsv").write_text("id\tlabel\tf\na\t0\t1\nb\t1\t2\n")
    assert is_table(tmp_path / "people.tsv")
    graph = read_tables(tmp_path / "people.tsv")
    assert (graph.name, graph.edges.shape) == ("people", (2, 0))
    (tmp_path / "contacts.csv").write_text("a,b\n")
    found = read_tables_fully(tmp_path / "people.tsv", tmp_path / "contacts.csv")
    assert found.graph.edges.tolist() == [[0], [1]]
    (tmp_path / "people.tsv").rename(tmp_path / "nodes.tsv")
    (tmp_path / "contacts.csv").rename(tmp_path / "edges.csv")
    assert read_tables(tmp_path / "nodes.tsv").edges.tolist() == [[0], [1]]
    assert read_tables(tmp_path).edges.tolist() == [[0], [1]]
    with pytest.raises(FedquiltError, match="is a folder, which has its own edges"):
        read_tables_fully(tmp_path, tmp_path / "edges.csv")
    with pytest.raises(FedquiltError, match=r"There is no file '.*nobody.csv'"):
        read_tables_fully(tmp_path / "nodes.tsv", tmp_path / "nobody.csv")
    (tmp_path / "people.xlsx").write_bytes(b"")
    assert not is_table(tmp_path / "people.xlsx")
    with pytest.raises(FedquiltError, match="is no table; save it as csv or parquet"):
        read_tables(tmp_path / "people.xlsx")
