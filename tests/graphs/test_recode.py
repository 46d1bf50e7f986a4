"""Tables of several owners with one set of features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.recode import joint_encoding, recoded
from fedquilt.graphs.tables import TableOptions, read_tables
from support.graphs import tiny


def table(tmp_path: Path, name: str, text: str, **options: object) -> Graph:
    path = tmp_path / f"{name}.csv"
    path.write_text(text)
    return read_tables(path, options=TableOptions(**options))


def joined(*graphs: Graph) -> list[Graph]:
    joint = joint_encoding(graphs)
    return [recoded(graph, joint) for graph in graphs]


def test_each_hospital_lacks_something(tmp_path: Path) -> None:
    a = table(tmp_path, "a", "id,label,age,town,bmi\n1,0,30,Rome,20\n2,1,,Oslo,22\n3,1,50,Rome,24\n")
    b = table(tmp_path, "b", "id,label,age,town,bmi\n1,0,60,Bonn,\n2,1,70,Rome,\n")
    assert a.feature_names != b.feature_names
    first, second = joined(a, b)
    names = ("age", "age:missing", "town=Bonn", "town=Oslo", "town=Rome", "bmi", "bmi:missing")
    assert first.feature_names == second.feature_names == names
    assert first.x.tolist() == [[30, 0, 0, 0, 1, 20, 0], [40, 1, 0, 1, 0, 22, 0], [50, 0, 0, 0, 1, 24, 0]]
    assert second.x.tolist() == [[60, 0, 1, 0, 0, 22, 1], [70, 0, 0, 0, 1, 22, 1]]
    first.validate()
    # A table that is read with the joint encoding is the same, but for the mean in a gap.
    again = read_tables(tmp_path / "b.csv", encoding=joint_encoding([a, b]))
    assert np.array_equal(again.x[:, :5], second.x[:, :5])


def test_what_was_other_stays_other(tmp_path: Path) -> None:
    a = table(tmp_path, "a", "id,label,t\n" + "".join(f"{n},0,{t}\n" for n, t in enumerate("xxyyz")), cap=2)
    b = table(tmp_path, "b", "id,label,t\n1,0,z\n2,1,z\n")
    first, second = joined(a, b)
    assert first.feature_names == ("t=x", "t=y", "t=z", "t=other")
    assert first.x.sum(axis=0).tolist() == [2, 2, 0, 1]
    assert second.x.sum(axis=0).tolist() == [0, 0, 2, 0]
    narrow = recoded(second, a.encoding)
    assert narrow.x.sum(axis=0).tolist() == [0, 0, 2]


def test_graphs_that_agree_keep_their_features_in_the_order_given(tmp_path: Path) -> None:
    a = table(tmp_path, "a", "id,label,f,t\n1,0,30,x\n2,1,3,y\n", categories={"t": ["y", "x"]})
    assert joint_encoding([a, a]) == a.encoding
    assert np.array_equal(joined(a, a)[1].x, a.x)
    with pytest.raises(FedquiltError, match="does not say how its columns became features"):
        recoded(tiny(), a.encoding)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("id,label,f\n1,0,30\n2,1,3\n", "b has no column 'town', which another table has"),
        (
            "id,label,f,town\n1,0,30,1\n2,1,3,2\n",
            "'town' has categories in one table and numbers or yes and no in another",
        ),
    ],
)
def test_tables_that_do_not_fit_together(tmp_path: Path, other: str, message: str) -> None:
    a = table(tmp_path, "a", "id,label,f,town\n1,0,30,x\n2,1,3,y\n")
    with pytest.raises(FedquiltError, match=message):
        joined(a, table(tmp_path, "b", other))
