"""What pyarrow reads: numbers at once, and as Python reads them; values of parquet as a csv file has them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from fedquilt.graphs.tables.arrow_cells import read_csv, read_parquet
from fedquilt.graphs.tables.dialect import Dialect
from fedquilt.graphs.tables.problems import Problems
from fedquilt.graphs.tables.values import quick_numbers

pytest.importorskip("pyarrow")
COMMAS = Dialect("utf-8-sig", ",")


def test_numbers_are_bit_for_bit_those_of_python(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = [
        *(repr(float(value)) for value in rng.normal(size=2000) * 10.0 ** rng.integers(-30, 30, 2000)),
        " 7 ",
        "1e3",
        "-0.0",
    ]
    path = tmp_path / "nodes.csv"
    path.write_text("x,y\n" + "".join(f"{value},1_0\n" for value in values))
    table = read_csv(path, ["x", "y"], COMMAS, Problems(path))
    below = np.arange(1, len(values) + 1)
    assert np.array_equal(table.store.numbers(0, below), quick_numbers([value.strip() for value in values]))
    assert np.array_equal(table.store.numbers(0, below[::2]), quick_numbers([value.strip() for value in values])[::2])
    assert table.store.numbers(1, below) is None


@pytest.mark.parametrize("cell", ["", "nan", "inf", "1e999", "x", "0x10", "1,5", "\uff11"])
def test_what_is_no_plain_number(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(f'x\n1\n"{cell}"\n')
    assert read_csv(path, ["x"], COMMAS, Problems(path)).store.numbers(0, np.array([1, 2])) is None


def test_a_row_that_never_ends_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text('x,y\n"' + "1,2\n" * 600_000)
    problems = Problems(path)
    try:
        read_csv(path, ["x", "y"], COMMAS, problems)
    except csv.Error:
        return
    assert problems


def test_values_of_parquet(tmp_path: Path) -> None:
    import datetime

    import pyarrow as pa
    from pyarrow import parquet

    columns = {
        "a": [1.0, None, 2.5],
        "b": [True, False, None],
        "c": [datetime.date(2021, 3, 1)] * 3,
        "d": [" x", "y", "z"],
    }
    parquet.write_table(pa.table(columns), tmp_path / "n.parquet")
    table = read_parquet(tmp_path / "n.parquet")
    assert [table.column(number) for number in range(4)] == [
        ["1", "", "2.5"],
        ["True", "False", ""],
        ["2021-03-01"] * 3,
        ["x", "y", "z"],
    ]
    assert table.rows.tolist() == [1, 2, 3]
