"""What cells are: numbers as people write them, yes and no, dates, nothing."""

from __future__ import annotations

import numpy as np
import pytest

from fedquilt.graphs.tables.values import (
    boolean,
    find_decimal,
    is_boolean,
    is_date,
    is_missing,
    number,
    quick_numbers,
)


@pytest.mark.parametrize(
    ("cell", "decimal", "value"),
    [
        ("31", ".", 31),
        ("-1.5e3", ".", -1500),
        (".5", ".", 0.5),
        ("1,234.5", ".", 1234.5),
        ("1,234", ".", 1234),
        ("3,5", ".", None),
        ("3,5", ",", 3.5),
        ("1.234,5", ",", 1234.5),
        ("1.234", ",", 1234),
        ("3.5", ",", None),
        ("1 234 567", ",", 1234567),
        ("1\u202f234,5", ",", 1234.5),
        ("12'000", ".", 12000),
        ("\u22124,5", ",", -4.5),
        ("1_000", ".", None),
        ("\uff11\uff12", ".", None),
        ("1e999", ".", None),
        ("inf", ".", None),
        ("nan", ".", None),
        ("12 %", ".", None),
        ("", ".", None),
        ("9" * 500, ".", None),
    ],
)
def test_numbers(cell: str, decimal: str, value: float | None) -> None:
    assert number(cell, decimal) == value


def test_plain_numbers_are_read_at_once() -> None:
    assert np.array_equal(quick_numbers(["1", "-2.5", "1e3"]), [1, -2.5, 1000])
    for cells in (["1", ""], ["nan"], ["inf"], ["1_0"], ["\uff11"], ["1,5"], ["1e999"]):
        assert quick_numbers(cells) is None


@pytest.mark.parametrize(
    ("cells", "points", "sign"),
    [
        (["3,5", "1"], 0, ","),
        (["3.5", "1"], 0, "."),
        (["3,5", "1.5", "2.5"], 0, "."),
        (["1,234"], 0, ","),
        (["1,234"], 5, "."),
        (["1,234", "3.5"], 0, "."),
        (["1.234", "3,5"], 0, ","),
        (["Rome", ""], 0, "."),
    ],
)
def test_the_decimal_sign(cells: list[str], points: int, sign: str) -> None:
    assert find_decimal([dict.fromkeys(cells, 1)], points) == sign


def test_missing() -> None:
    for cell in ("", "NA", "n/a", "NaN", "null", "?"):
        assert is_missing(cell, frozenset(), numbers=False)
    assert is_missing("none", frozenset(), numbers=True)
    assert not is_missing("none", frozenset(), numbers=False)
    assert is_missing("-999", frozenset({"-999"}), numbers=True)


def test_yes_and_no() -> None:
    assert [boolean(cell) for cell in ("Yes", "TRUE", "no", "f", "1", "0", "maybe")] == [1, 1, 0, 0, 1, 0, None]
    assert is_boolean({"yes": 1, "No": 2})
    assert is_boolean({"yes": 1, "0": 2})
    assert not is_boolean({"0": 1, "1": 2})  # numbers
    assert not is_boolean({"m": 1, "f": 2})


def test_dates() -> None:
    for cell in (
        "2021-03-01",
        "2021-03-01 12:30",
        "2021-03-01T12:30:00Z",
        "1.3.2021",
        "03/01/21",
        "12 Mar 2021",
        "08:15",
    ):
        assert is_date(cell), cell
    for cell in ("2021", "3.14", "12-34", "192.168.0.1", "Rome", "1.204,5"):
        assert not is_date(cell), cell
