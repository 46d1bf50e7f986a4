"""Each fault of a graph has its own sentence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from fedquilt.errors import FedquiltError
from fedquilt.graphs.validate import first_repeated
from support.graphs import tiny

NOTHING = np.zeros(4, dtype=bool)
ALL = np.ones(4, dtype=bool)
NAN = np.array([[0.0, 1], [1, 0], [np.nan, 1], [0, 0]])

FAULTS = [
    ({"y": np.array([], dtype=int), "x": np.zeros((0, 2)), "edges": np.zeros((2, 0), int)}, "has no nodes"),
    ({"edges": np.array([[0, 1], [1, 2], [2, 3]])}, r"edges of shape 3 x 2; they must be 2 x E"),
    ({"edges": np.array([[0.5], [1.0]])}, "edges of type float64; they must be whole numbers"),
    (
        {"edges": np.array([[0, 1], [1, 4]])},
        "an edge 1-4 to a node that is not there; nodes are numbered 0 to 3",
    ),
    ({"edges": np.array([[0], [-1]])}, "an edge 0--1 to a node that is not there"),
    ({"x": np.zeros((3, 2))}, "3 rows of features but 4 labels"),
    ({"x": np.zeros((4, 0))}, "has no features"),
    ({"x": np.zeros(4)}, "features of shape 4; they must be nodes x features"),
    ({"x": np.array([["a"]] * 4)}, "features of type .*; they must be numbers"),
    ({"x": NAN}, "a feature of node 2 that is NaN or infinite"),
    ({"x": np.full((4, 2), 1e300)}, "a feature of node 0 that is NaN or infinite"),
    ({"x": sp.csr_matrix(NAN)}, "a feature of node 2 that is NaN or infinite"),
    ({"x": NAN, "ids": list("abcd")}, "a feature of node 'c' that is NaN or infinite"),
    ({"x": np.full((4, 2), 3e38)}, "a feature of node 0 beyond 1e.15, where sums overflow in single precision; scale"),
    ({"x": sp.csr_matrix(np.diag([1, 1, -2e15, 1]))}, "a feature of node 2 beyond 1e.15"),
    ({"x": sp.csr_matrix((4, 10**12))}, "has 1,000,000,000,000 features, more than the 10,000,000 allowed"),
    ({"y": np.array([0, 1, np.inf, 0])}, "a label that is infinite or beyond 1e.15"),
    ({"y": np.array([0, 1, 1e300, 0])}, "a label that is infinite or beyond 1e.15"),
    ({"y": np.array([0, 1, 2**64 - 1, 0], dtype=np.uint64)}, "labels of more than 62 bits"),
    ({"classes": 10**9}, "says it has 1000000000 classes, more than the 10000 allowed"),
    ({"name": "a\0b"}, "has a name with a NUL character; rename it"),
    ({"class_names": ("a", "b", "\x1b[2J")}, "has a class's name with a control character"),
    ({"class_names": ("a", "b", "\ud800")}, "has a class's name with a character that is not text"),
    ({"feature_names": ("a", "\udcff")}, "has a feature's name with a character that is not text"),
    ({"y": np.array([0, 1, -2, 0])}, "the label -2; labels are 0, 1, 2"),
    ({"y": np.full(4, -1)}, "has no labelled node"),
    ({"y": np.array([0, 1, 99999, 0])}, "the label 99999, more than the 10000 classes allowed"),
    ({"y": np.array([0, 0.5, 1e16, 0])}, "a label that is infinite or beyond 1e.15"),
    ({"y": np.array(list("abcd"))}, "labels of type .*; number the classes"),
    ({"y": np.zeros((4, 2), int)}, "labels of shape 4 x 2"),
    ({"classes": 1}, "says it has 1 classes but holds the label 1"),
    ({"class_names": ("a",)}, "names 1 classes but has 2"),
    ({"masks": {"train": ALL, "val": NOTHING}}, "has some masks only"),
    ({"masks": {"train": ALL, "val": NOTHING, "test": np.zeros(4)}}, "test_mask of type float64"),
    ({"masks": {"train": ALL, "val": NOTHING, "test": NOTHING[:3]}}, "test_mask of shape 3 but 4 nodes"),
    (
        {"masks": {"train": ALL, "val": ALL, "test": NOTHING}},
        "4 nodes in more than one of its train, val and test masks",
    ),
    ({"ids": ["a", "b", "a", "c"]}, "the id 'a' more than once"),
    ({"ids": ["a", "b"]}, "ids of shape 2 but 4 nodes"),
    ({"copies": [0, 1]}, "copies of shape 2 but 4 nodes"),
    ({"copies": [0.5, 1, 2, 2]}, "copies of type float64; they must be whole numbers"),
]


@pytest.mark.parametrize(("changes", "message"), FAULTS, ids=[message[:40] for _, message in FAULTS])
def test_fault(changes: dict[str, object], message: str) -> None:
    with pytest.raises(FedquiltError, match=f"^here .*{message}") as caught:
        tiny(where="here", **changes)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (np.zeros((3, 1), int), "edges of shape 3 x 1"),
        (np.array([[0], [9]]), "a node that is not there"),
        (np.array([[1], [0]]), "not u < v"),
    ],
)
def test_a_graph_made_by_hand_is_checked_too(edges: np.ndarray, message: str) -> None:
    with pytest.raises(FedquiltError, match=message):
        replace(tiny(), edges=edges).validate()
    with pytest.raises(FedquiltError, match="no nodes"):
        replace(tiny(), y=np.array([], dtype=np.int64)).validate()


def test_a_feature_at_the_limit_is_sound() -> None:
    assert tiny(x=np.full((4, 2), 1e15)).features == 2


def test_the_first_repeated_name_is_found_at_once() -> None:
    assert first_repeated(["a", "b", "a", "b"]) == "a"
    assert first_repeated([]) is None
    many = [str(number) for number in range(200_000)]
    assert first_repeated(many) is None
    assert first_repeated([*many, "199999"]) == "199999"  # comparing all pairs would take minutes
