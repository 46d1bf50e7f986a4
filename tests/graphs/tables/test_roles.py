"""Which column is what: by the names that the user gives, an encoding, or the usual ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.encoding import Column, Encoding
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.parse import read_cells
from fedquilt.graphs.tables.problems import Problems
from fedquilt.graphs.tables.roles import find_columns

Roles = tuple[dict[str, int], list[int], list[int]]


def roles(tmp_path: Path, text: str, encoding: Encoding | None = None, **options: object) -> Roles:
    path = tmp_path / "nodes.csv"
    path.write_text(text)
    chosen, problems = TableOptions(**options), Problems(path)
    found = find_columns(read_cells(path, chosen, problems), chosen, problems, encoding is None, encoding)
    problems.raise_any()
    assert found is not None
    return found


def test_roles_by_name_whatever_the_case(tmp_path: Path) -> None:
    assert roles(tmp_path, "f,ID,Label,SPLIT,client,g\n") == (
        {"id": 1, "label": 2, "split": 3, "client": 4},
        [0, 5],
        [],
    )
    found = roles(tmp_path, "f,no,y,split,g\n", id="no", label="Y", split=None, drop=["g"])
    assert found == ({"id": 1, "label": 2}, [0, 3], [4])
    encoding = Encoding((Column("g"), Column("f")), id="no", label="y", dropped=("h",))
    assert roles(tmp_path, "f,no,g,h\n", encoding) == ({"id": 1}, [2, 0], [3])
    # A feature that is called like a role was made one by graph.yaml, which a new table need not have.
    encoding = Encoding((Column("client"),), label="y")
    assert roles(tmp_path, "id,client\n", encoding) == ({"id": 0}, [1], [])
    assert roles(tmp_path, "id,client\n", encoding, drop=["h"], split="part") == ({"id": 0}, [1], [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": "patient"}, "no column 'patient'"),
        ({"split": "part"}, "no column 'part'"),
        ({"drop": ["x"]}, "no column 'x', which is named under drop"),
        ({"categories": {"x": None}}, "no column 'x', which is named under categories"),
        ({"numeric": ["x"]}, "no column 'x', which is named under numeric"),
        ({"drop": ["f"]}, "no feature columns"),
    ],
)
def test_a_column_that_is_named_has_to_be_there(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(FedquiltError, match=message):
        roles(tmp_path, "id,label,f\na,0,1\nb,1,1\n", **options)
