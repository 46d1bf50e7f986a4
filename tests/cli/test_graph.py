"""`fedquilt graph check` and `fedquilt graph import`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedquilt.datasets.entries.patchwork import patchwork
from fedquilt.graphs.given_clients import given_clients
from fedquilt.graphs.npz import read_npz, write_npz
from support.messy_tables import write_messy


def test_graph_check_prints_figures_and_warnings(call: Callable) -> None:
    graph = patchwork()
    write_npz(graph, Path("mine.npz"))
    called = call("graph check mine.npz")
    assert called.status == 0, called.err
    assert "1,400" in called.out
    assert "edge homophily" in called.out
    assert called.out.endswith("The graph is sound.\n")


def test_graph_check_of_an_unsound_file_is_one_sentence(refused: Callable, here: Path) -> None:
    np.savez(here / "bad.npz", x=np.zeros((3, 2)))
    assert "bad" in refused("graph check bad.npz")
    (here / "text.npz").write_text("no graph")
    assert "text.npz" in refused("graph check text.npz")


def test_graph_check_of_tables_says_what_became_of_each_column(call: Callable, here: Path) -> None:
    write_messy(here / "mine")
    called = call("graph check mine")
    assert called.status == 0, called.err
    assert "'Alter'; 1 missing became the mean, 47.57, with 'Alter:missing'" in called.out
    assert "nodes.csv: semicolons, Windows-1252 (Latin-1), decimal commas." in called.out
    assert "6 undirected edges of 8 rows: 1 row named a pair again and 1 row joined a node to itself." in called.out
    assert "gesund 4, krank 3" in called.out
    assert "Scale of the features" in called.out
    assert "--prepare standard" in called.out


def test_all_problems_are_told_at_once_a_line_each(call: Callable, here: Path) -> None:
    write_messy(here / "mine", wrong=True)
    called = call("graph check mine")
    assert called.status == 2
    lines = called.err.splitlines()
    assert lines[0] == "fedquilt: mine has 6 problems; correct them and try again:"
    assert [line.split(":")[0] for line in lines[1:]] == [
        *(f"  nodes.csv, line {line}" for line in (12, 13, 14, 15, 16)),
        "  edges.csv, line 10",
    ]
    assert called.out == ""


def test_options_name_the_columns(call: Callable, refused: Callable, here: Path) -> None:
    write_messy(here / "mine", options=None)
    named = "--id Patient --label Diagnose --source von --target nach --weight Kontakte --drop Aufnahme,Bemerkung"
    assert call(f"graph check mine {named}").status == 0
    assert "There is no column" not in call(f"graph import mine {named} --out mine.npz").err
    graph = read_npz(here / "mine.npz")
    assert graph.class_names == ("gesund", "krank")
    assert graph.ids.tolist()[:2] == ["p01", "p02"]
    write_npz(patchwork(), here / "p.npz")
    assert "--id is for tables" in refused("graph check p.npz --id x")


def test_import_writes_one_file(call: Callable, refused: Callable, here: Path) -> None:
    (here / "people.csv").write_text("id,label,age,client\na,no,31,north\nb,yes,,south\n")
    (here / "contacts.csv").write_text("a,b\nb,a\n")
    called = call("graph import people.csv contacts.csv --out mine.npz")
    assert called.status == 0, called.err
    assert "2 clients: north 1, south 1" in called.out
    assert "2 nodes, 2 features, 2 classes: written to mine.npz." in called.out
    assert read_npz(here / "mine.npz").edges.tolist() == [[0], [1]]
    assert given_clients(here / "mine.npz").tolist() == ["north", "south"]
    assert "already there" in refused("graph import people.csv --out mine.npz")
    assert "--out" in refused("graph import people.csv")
    assert "no file or folder" in refused("graph import nobody.csv --out x.npz")
    assert not (here / "x.npz").exists()


def test_import_like_another_makes_the_same_features(call: Callable, refused: Callable, here: Path) -> None:
    (here / "a.csv").write_text("id,label,age,town\n1,no,30,Rome\n2,yes,,Oslo\n3,no,50,Rome\n")
    (here / "b.csv").write_text("id,age,town\n7,,Rome\n8,60,Bonn\n")
    assert call("graph import a.csv --out a.npz").status == 0
    assert "no column 'label'" in refused("graph import b.csv --like a.npz --out b.npz")
    called = call("graph import b.csv --like a.npz --unlabelled --out b.npz")
    assert called.status == 0, called.err
    graph = read_npz(here / "b.npz", labelled=False)
    assert graph.feature_names == ("age", "age:missing", "town=Oslo", "town=Rome")
    assert graph.x.tolist() == [[40, 1, 0, 1], [60, 0, 0, 0]]
    assert "1 further value (1 rows) became none of them" in called.out
    np.savez(here / "plain.npz", edge_index=np.zeros((2, 0), int), y=np.zeros(2, int), x=np.ones((2, 1)))
    assert "does not say how its columns became features" in refused("graph import b.csv --like plain.npz --out c.npz")
