"""Columns as features: numbers, yes and no, categories, gaps; and what cannot be a feature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.encoding import Encoding
from fedquilt.graphs.tables.features import TableFeatures, read_features
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.parse import read_cells
from fedquilt.graphs.tables.problems import Problems


def features(
    tmp_path: Path, cells: list[str], encoding: Encoding | None = None, name: str = "c", **options: object
) -> TableFeatures:
    """One column, beside a number for each row."""
    path = tmp_path / "nodes.csv"
    path.write_text(f"row;{name}\n" + "".join(f"{row};{cell}\n" for row, cell in enumerate(cells)))
    chosen, problems = TableOptions(**options), Problems(path)
    table = read_cells(path, chosen, problems)
    read = read_features(table, [1], chosen, tuple(chosen.missing), problems, encoding)
    problems.raise_any()
    return read


def names(read: TableFeatures) -> list[str]:
    return [name for column in read.columns for name in column.feature_names]


def test_plain_numbers_are_as_they_are(tmp_path: Path) -> None:
    read = features(tmp_path, ["0.1", "1e3", "-7"])
    assert names(read) == ["c"]
    assert read.x[:, 0].tolist() == np.array([0.1, 1000, -7], dtype=np.float32).tolist()
    assert read.columns[0].fill == pytest.approx(331.0333)


def test_gaps_are_the_mean_and_an_indicator(tmp_path: Path) -> None:
    read = features(tmp_path, ["1", "", "3", "NA", "-999"], missing=["-999"])
    assert names(read) == ["c", "c:missing"]
    assert read.x.tolist() == [[1, 0], [2, 1], [3, 0], [2, 1], [2, 1]]
    assert names(features(tmp_path, ["1", "2"], indicators=["c"])) == ["c", "c:missing"]


def test_yes_and_no(tmp_path: Path) -> None:
    read = features(tmp_path, ["yes", "No", "TRUE", ""])
    assert names(read) == ["c", "c:missing"]
    assert read.x.tolist() == pytest.approx(np.array([[1, 0], [0, 0], [1, 0], [2 / 3, 1]]))


def test_categories_with_a_cap(tmp_path: Path) -> None:
    cells = ["b"] * 3 + ["a"] * 3 + ["c"] * 2 + ["d", "?"]
    read = features(tmp_path, cells, cap=2)
    assert names(read) == ["c=a", "c=b", "c=other", "c:missing"]
    assert read.x.sum(axis=0).tolist() == [3, 3, 3, 1]
    assert read.notes[0].text == "2 features 'c=...', 'c=other' for 2 further values (3 rows); 1 missing, 'c:missing'"
    given = features(tmp_path, cells, categories={"c": ["d", "zzz"]})
    assert names(given) == ["c=d", "c=zzz", "c=other", "c:missing"]
    assert names(features(tmp_path, ["d", "d"], categories={"c": ["d"]})) == ["c=d", "c=other"]
    codes = features(tmp_path, ["1", "2", "1"], categories=["c"])
    assert names(codes) == ["c=1", "c=2"]


def test_a_new_table_is_encoded_like_the_old_one(tmp_path: Path) -> None:
    for cells, new, options, expected in (
        (["1", "", "3"], ["", "5"], {}, [[2, 1], [5, 0]]),
        (["1", "3"], ["", "5"], {}, [[2], [5]]),
        (["a", "b", "a", "b", "c"], ["b", "zzz", ""], {"cap": 2}, [[0, 1, 0], [0, 0, 1], [0, 0, 0]]),
        (["a", "b", "a", "b"], ["b", "zzz"], {}, [[0, 1], [0, 0]]),
        (["1", "2"], ["2", "7"], {"categories": ["c"]}, [[0, 1], [0, 0]]),
        (["yes", "no"], ["1", "0"], {}, [[1], [0]]),
    ):
        encoding = Encoding(features(tmp_path, cells, **options).columns)
        assert features(tmp_path, new, encoding).x.tolist() == expected


def test_a_column_without_a_value_is_left_out(tmp_path: Path) -> None:
    read = features(tmp_path, ["", "NA"])
    assert (read.columns, read.dropped, read.x.shape) == ((), ("c",), (2, 0))


@pytest.mark.parametrize(
    ("cells", "options", "message"),
    [
        (["2021-03-01", "2021-04-01", ""], {}, "line 2: the column 'c' has dates, such as '2021-03-01'; make a number"),
        ([f"name {n}" for n in range(30)], {}, "'c' has 30 different texts in 30 rows, so it is a name or free text"),
        (["a", "b", "x" * 500], {}, "a text of 500 characters, which is no category"),
        (["1", "2", "three"], {}, "line 4: 'three' in the column 'c' is not a number; correct it or leave it empty"),
        (["a", "b", "3"], {"numeric": ["c"]}, "line 2: 'a' in the column 'c' is not a number"),
        (["1,5", "2,5", "3.5"], {}, "line 4: '3.5' in the column 'c' is not a number .the table's decimal sign is ','"),
        (["1", "1e16"], {}, "line 3: a number in the column 'c' is beyond 1e.15"),
    ],
)
def test_what_cannot_be_a_feature(tmp_path: Path, cells: list[str], options: dict, message: str) -> None:
    with pytest.raises(FedquiltError, match=message):
        features(tmp_path, cells, **options)


def test_free_text_is_a_category_if_the_user_says_so(tmp_path: Path) -> None:
    read = features(tmp_path, [f"name {n}" for n in range(30)], categories=["c"], cap=5)
    assert len(names(read)) == 6
