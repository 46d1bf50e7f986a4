"""Graphs of several owners: the union of classes by name, the same features in one order, and what is said otherwise."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.errors import FedquiltError
from fedquilt.graphs.align import alignment_of, with_classes
from fedquilt.graphs.encoding import Column, Encoding
from fedquilt.graphs.graph import Graph

NO_EDGES = np.zeros((2, 0), dtype=np.int64)


def graph(y: list[int], classes: tuple[str, ...] | int, features: tuple[str, ...] | int = 2) -> Graph:
    names = classes if isinstance(classes, tuple) else None
    width = len(features) if isinstance(features, tuple) else features
    x = np.arange(len(y) * width, dtype=np.float32).reshape(len(y), width)
    count = classes if isinstance(classes, int) else len(classes)
    given = features if isinstance(features, tuple) else None
    return Graph("g", NO_EDGES, x, np.array(y), count, class_names=names, feature_names=given)


def test_classes_are_the_union_by_name() -> None:
    north, south = graph([0, 1, -1], ("flu", "none")), graph([0, 1], ("burn", "flu"))
    found = alignment_of([north, south], ["north", "south"])
    assert found.class_names == ("burn", "flu", "none")
    assert found.labels(0, north).tolist() == [1, 2, -1]
    assert found.labels(1, south).tolist() == [0, 1]


def test_a_client_that_has_all_classes_gives_their_order() -> None:
    found = alignment_of([graph([0], ("b",)), graph([0, 1, 2], ("c", "b", "a"))])
    assert found.class_names == ("c", "b", "a")
    assert found.labels(0, graph([0], ("b",))).tolist() == [1]


def test_numbers_without_names_are_the_same_class_everywhere_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fedquilt"):
        found = alignment_of([graph([0, 1], 2), graph([2, 0], 3)], ["north", "south"])
    assert (found.classes, found.class_names) == (3, None)
    assert "client 'north' 2, others up to 3" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "fedquilt"):
        alignment_of([graph([0, 1], 2), graph([1, 0], 2)])
    assert not caplog.text


def test_names_here_and_numbers_there_are_refused() -> None:
    with pytest.raises(FedquiltError, match="Client 'b' numbers its classes, and client 'a' names them; name them"):
        alignment_of([graph([0], ("x",)), graph([0], 1)], ["a", "b"])


def test_features_in_another_order_are_brought_into_the_first_ones() -> None:
    first, other = graph([0], 1, ("age", "bmi", "lab")), graph([0], 1, ("lab", "age", "bmi"))
    found = alignment_of([first, other])
    assert found.columns[0] is None
    assert found.columns[1].tolist() == [1, 2, 0]
    assert found.features(1, other).tolist() == [[1, 2, 0]]
    assert found.features(1, replace(other, x=sp.csr_matrix(other.x))).toarray().tolist() == [[1, 2, 0]]


@pytest.mark.parametrize(
    ("features", "says"),
    [
        (
            ("age", "lab"),
            "Client 'b' lacks the feature 'bmi' of client 'a'; give all clients the same features: rename or",
        ),
        (("age", "bmi", "lab", "x", "y"), "Client 'b' has the features 'x', 'y', which client 'a' has not; give all"),
        (("age", "BMI", "lab"), "Client 'b' lacks the feature 'bmi' of client 'a' and has the feature 'BMI', which"),
        (4, "Client 'b' has 4 features and client 'a' has 3; give all clients the same features, in the same order"),
    ],
)
def test_other_features_are_named_with_the_client(features: tuple[str, ...] | int, says: str) -> None:
    with pytest.raises(FedquiltError, match=says):
        alignment_of([graph([0], 1, ("age", "bmi", "lab")), graph([0], 1, features)], ["a", "b"])


def test_widths_without_names_differ() -> None:
    with pytest.raises(FedquiltError, match="Client 1 has 3 features and client 0 has 2"):
        alignment_of([graph([0], 1, 2), graph([0], 1, 3)])


def table(*columns: Column) -> Graph:
    encoding = Encoding(columns)
    return replace(graph([0], 1, encoding.feature_names), encoding=encoding)


def test_a_category_or_gap_that_one_table_lacks_is_zero_there() -> None:
    age, ward = Column("age"), Column("ward", "category", categories=("a", "b"))
    north, south = table(age, ward), table(replace(ward, categories=("a", "c")), replace(age, indicator=True))
    found = alignment_of([north, south])
    assert found.feature_names == ("age", "age:missing", "ward=a", "ward=b", "ward=c")
    assert found.encoding.feature_names == found.feature_names
    assert found.features(0, north).tolist() == [[0, 0, 1, 2, 0]]
    assert found.features(1, south).tolist() == [[2, 3, 0, 0, 1]]


def test_an_empty_column_of_one_table_is_missing_there() -> None:
    north, south = table(Column("age"), Column("bmi", fill=4)), table(Column("age"))
    south = replace(south, encoding=replace(south.encoding, dropped=("bmi",)))
    found = alignment_of([north, south])
    assert found.feature_names == ("age", "bmi", "bmi:missing")
    assert found.features(1, south).tolist() == [[0, 4, 1]]


def test_a_column_that_is_a_number_here_and_a_category_there() -> None:
    says = "Client 'b' has a category in the column 'age' and client 'a' a number; correct its cells"
    with pytest.raises(FedquiltError, match=says):
        alignment_of([table(Column("age")), table(Column("age", "category", categories=("x",)))], ["a", "b"])
    with pytest.raises(FedquiltError, match="Client 'b' lacks the column 'age' of client 'a' and has the column 'bmi'"):
        alignment_of([table(Column("age")), table(Column("bmi"))], ["a", "b"])


def test_classes_that_a_site_agreed_on() -> None:
    found = with_classes(graph([0, 1, -1], ("flu", "none")), ["burn", "none", "flu"])
    assert (found.y.tolist(), found.classes, found.class_names) == ([2, 1, -1], 3, ("burn", "none", "flu"))
    numbered = with_classes(graph([0, 1], 2), ["a", "b", "c"])
    assert (numbered.y.tolist(), numbered.class_names) == ([0, 1], ("a", "b", "c"))
    with pytest.raises(FedquiltError, match="g has the class 'none', which is not among the classes that are named"):
        with_classes(graph([0], ("none",)), ["a"])
    with pytest.raises(FedquiltError, match="g has 3 classes, more than the 2 that are named"):
        with_classes(graph([0], 3), ["a", "b"])
