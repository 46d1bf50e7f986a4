"""A table's column of labels that are numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.tables import TableOptions, read_tables, read_tables_fully
from fedquilt.graphs.tables.summary import column_rows

EDGES = "source,target\na,b\nb,c\n"


def tables(folder: Path, labels: list[str], sign: str = ",", yaml: str = "", features: str = "") -> Path:
    folder.mkdir()
    rows = [
        f"{name}{sign}{label}{sign}{features or number}"
        for number, (name, label) in enumerate(zip("abcd", labels, strict=False))
    ]
    (folder / "nodes.csv").write_text("\n".join([f"id{sign}label{sign}f", *rows]) + "\n")
    (folder / "edges.csv").write_text(EDGES)
    if yaml:
        (folder / "graph.yaml").write_text(yaml)
    return folder


def read(folder: Path, labels: list[str], **more: str) -> Graph:
    return read_tables(tables(folder, labels, **more))


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [
        (["1.5", "", "-2", "NaN"], [1.5, np.nan, -2.0, np.nan]),
        (["-1", "0.5", "3"], [-1.0, 0.5, 3.0]),  # -1 is a value among numbers
        (["250000", "310000", "n/a"], [250000.0, 310000.0, np.nan]),
        (["1e-3", "2", "3"], [0.001, 2.0, 3.0]),
        (["-7", "2", "3"], [-7.0, 2.0, 3.0]),
    ],
)
def test_labels_are_numbers_where_one_cannot_be_a_class(
    tmp_path: Path, labels: list[str], numbers: list[float]
) -> None:
    np.testing.assert_array_equal(read(tmp_path / "t", labels).numbers, numbers)


@pytest.mark.parametrize(
    ("labels", "classes"), [(["0", "1", "-1"], 2), (["1.0", "0", ""], 2), (["1.5", "old", "x"], 3)]
)
def test_other_labels_stay_classes(tmp_path: Path, labels: list[str], classes: int) -> None:
    graph = read(tmp_path / "t", labels)
    assert graph.numbers is None
    assert graph.classes == classes


def test_graph_yaml_says_what_labels_are(tmp_path: Path) -> None:
    graph = read(tmp_path / "number", ["0", "-1", "-"], yaml="label_type: number\n")
    np.testing.assert_array_equal(graph.numbers, [0.0, -1.0, np.nan])
    graph = read(tmp_path / "class", ["0.5", "1.5", "0.5"], yaml="label_type: class\n")
    assert graph.numbers is None
    assert graph.class_names == ("0.5", "1.5")
    with pytest.raises(FedquiltError, match=r"line 3: the label 'many' is no number; correct it, or leave it empty"):
        read(tmp_path / "words", ["1", "many", "2"], yaml="label_type: number\n")
    with pytest.raises(FedquiltError, match="'label_type' is not possible"):
        read(tmp_path / "wrong", ["1", "2", "3"], yaml="label_type: price\n")


def test_a_folder_with_classes_has_classes(tmp_path: Path) -> None:
    folder = tables(tmp_path / "t", ["0.5", "1.5", "0.5"])
    (folder / "classes.txt").write_text("0.5\n1.5\n")
    assert read_tables(folder).class_names == ("0.5", "1.5")


def test_decimal_commas_are_read(tmp_path: Path) -> None:
    np.testing.assert_array_equal(read(tmp_path / "t", ["1,5", "2", ""], sign=";").numbers, [1.5, 2.0, np.nan])
    graph = read(tmp_path / "u", ["1,5", "2", ""], sign=";", features="3,25")
    np.testing.assert_array_equal(graph.numbers, [1.5, 2.0, np.nan])


def test_a_number_that_is_too_large_is_a_problem_of_its_row(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match=r"line 2: the label '1e20' is beyond 1e\+15"):
        read(tmp_path / "t", ["1e20", "0.5", "1"])


def test_what_is_said_of_the_column(tmp_path: Path) -> None:
    found = read_tables_fully(tables(tmp_path / "t", ["1.5", "", "2.5"]))
    assert ("label", "label", "numbers from 1.5 to 2.5, mean 2; 1 unlabelled") in column_rows(found)


def test_labels_that_are_not_needed_may_be_anything(tmp_path: Path) -> None:
    folder = tables(tmp_path / "t", ["1", "many", "2"])
    found = read_tables_fully(folder, labelled=False, options=TableOptions(label_type="number"))
    np.testing.assert_array_equal(found.graph.numbers, [1.0, np.nan, 2.0])
