"""The table of edges: its columns, weights, repetitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.tables.cells import Cells
from fedquilt.graphs.tables.edges import Edges, read_edges
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.problems import Problems

PLACE = {"a": 0, "b": 1, "c": 2}


def edges(tmp_path: Path, text: str, unread: frozenset[str] | None = frozenset(), **options: object) -> Edges:
    path = tmp_path / "edges.csv"
    path.write_text(text)
    problems = Problems(tmp_path)
    nodes = Cells(tmp_path / "nodes.csv", [], np.zeros(0), None, None, np.zeros(0), refused=unread)
    found = read_edges(path, TableOptions(**options), problems, PLACE, nodes)
    problems.raise_any()
    return found


def test_repetitions_loops_and_direction_are_counted(tmp_path: Path) -> None:
    found = edges(tmp_path, "source,target\na,b\nb,a\na,b\nb,c\nc,c\n")
    assert found.pairs.tolist() == [[0, 1, 0, 1, 2], [1, 0, 1, 2, 2]]
    assert (found.repeated, found.loops, found.one_way) == (2, 1, 1)


def test_names_weights_and_other_columns(tmp_path: Path) -> None:
    found = edges(tmp_path, "note;To;from;Weight\nx;b;a;1,5\ny;c;b;2\n")
    assert found.pairs.tolist() == [[0, 1], [1, 2]]
    assert found.weights.tolist() == [1.5, 2]
    assert found.ignored == ("note",)
    found = edges(tmp_path, "u,v,n\na,b,3\n", source="u", target="V", weight="n")
    assert (found.pairs.tolist(), found.weights.tolist()) == ([[0], [1]], [3])
    assert edges(tmp_path, "a,b\nb,c\n").pairs.tolist() == [[0, 1], [1, 2]]
    assert edges(tmp_path, "x,y\nb,c\n").weights is None


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("source,target,weight\na,b,heavy\n", {}, "line 2: 'heavy' in the column 'weight' is not a number"),
        ("source,target\na,b\n", {"weight": "n"}, "it has no column 'n'"),
        ("source,target\na,b\n", {"source": "u"}, "it has no columns 'u' and 'target'"),
        ("source,target\na,x\nb,x\n", {}, "lines 2 and 3: an edge to 'x', which is not an id in nodes.csv"),
    ],
)
def test_problems(tmp_path: Path, text: str, options: dict, message: str) -> None:
    with pytest.raises(FedquiltError, match=message):
        edges(tmp_path, text, **options)


def test_an_edge_to_a_node_that_could_not_be_read_is_no_further_problem(tmp_path: Path) -> None:
    text = "source,target\na,x\na,y\n"
    with pytest.raises(FedquiltError, match="line 3: an edge to 'y'"):
        edges(tmp_path, text, unread=frozenset({"x"}))
    edges(tmp_path, text, unread=None)
