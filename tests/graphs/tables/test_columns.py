"""What a column is, told from its texts and from what the user says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedquilt.graphs.encoding import Column
from fedquilt.graphs.tables.columns import Columns
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.parse import read_cells
from fedquilt.graphs.tables.problems import Problems


def columns(tmp_path: Path, *each: str, **options: Any) -> Columns:
    """The columns a, b, ... of a table, after its ids; each is given as its cells, "-" for an empty one."""
    path = tmp_path / "nodes.csv"
    rows = zip(*(cells.split() for cells in each), strict=True)
    lines = [";".join(["id", *row]).replace("-;", ";").removesuffix("-") for row in rows]
    path.write_text("\n".join([";".join(["id", *"abc"[: len(each)]]), *lines]) + "\n")
    chosen, problems = TableOptions(**options), Problems(path)
    table = read_cells(path, chosen, problems)
    found = Columns(table, range(1, 1 + len(each)), chosen, chosen.missing, problems)
    problems.raise_any()
    return found


@pytest.mark.parametrize(
    ("cells", "options", "column"),
    [
        ("1 2 6", {}, Column("a", "number", 3.0, False)),
        ("1 - 5", {}, Column("a", "number", 3.0, True)),
        ("1 2 6", {"indicators": ["a"]}, Column("a", "number", 3.0, True)),
        ("1 -999 5", {"missing": ["-999"]}, Column("a", "number", 3.0, True)),
        ("yes no yes yes", {}, Column("a", "boolean", 0.75, False)),
        ("1 x 2", {"numeric": ["a"]}, Column("a", "number", 1.5, False)),
        ("x y x", {}, Column("a", "category", 0.0, False, ("x", "y"), False)),
        ("1 2 1", {"categories": ["a"]}, Column("a", "category", 0.0, False, ("1", "2"), False)),
        ("x y x", {"categories": {"a": ["y"]}}, Column("a", "category", 0.0, False, ("y",), True)),
        ("z y z y x", {"cap": 2}, Column("a", "category", 0.0, False, ("y", "z"), True)),
        ("- NA", {}, None),
        ("- NA", {"indicators": ["a"]}, Column("a", "number", 0.0, True)),
    ],
)
def test_what_a_column_is(tmp_path: Path, cells: str, options: dict[str, Any], column: Column | None) -> None:
    assert columns(tmp_path, cells, **options).describe(1) == column


def test_plain_numbers_are_read_and_texts_are_counted(tmp_path: Path) -> None:
    found = columns(tmp_path, "1 2 2", "x x -")
    assert {at: values.tolist() for at, values in found.quick.items()} == {1: [1, 2, 2]}
    assert found.counts == {2: {"x": 2, "": 1}}
    assert [found.name(at) for at in (1, 2)] == ["a", "b"]


def test_the_decimal_sign_is_the_tables(tmp_path: Path) -> None:
    assert columns(tmp_path, "1,5 2,5").decimal == ","
    assert columns(tmp_path, "1,5 2,5").describe(1) == Column("a", "number", 2.0, False)
    assert columns(tmp_path, "1.5 2.5").decimal == "."
    assert columns(tmp_path, "1,5 2,5", decimal=".").decimal == "."
