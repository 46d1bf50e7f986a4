"""How columns became features: names, JSON, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.encoding import Column, Encoding

TOWN = Column("town", "category", indicator=True, categories=("Oslo", "Rome"), other=True)
ENCODING = Encoding(
    (Column("age", fill=41.5, indicator=True), TOWN, Column("smoker", "boolean", 0.25)), dropped=("name",)
)


def test_names() -> None:
    assert ENCODING.feature_names == (
        *("age", "age:missing"),
        *("town=Oslo", "town=Rome", "town=other", "town:missing"),
        "smoker",
    )
    assert ENCODING.widths == [2, 4, 1]


def test_there_and_back() -> None:
    assert Encoding.from_json(ENCODING.to_json(), "x") == ENCODING
    assert Encoding.from_dict(json.loads(json.dumps(ENCODING.to_dict())), "x") == ENCODING


def test_features_of_a_column() -> None:
    x = np.zeros((3, 2), dtype=np.float32)
    ENCODING.columns[0].encode_numbers(np.array([1, np.nan, 3]), x)
    assert x.tolist() == [[1, 0], [41.5, 1], [3, 0]]
    x = np.zeros((4, 4), dtype=np.float32)
    assert TOWN.encode_categories(["Rome", "Bonn", None, "Oslo"], x) == 1
    assert x.tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"columns": None},
        {"columns": [3]},
        {"columns": [{"name": "a", "categories": [], "kind": "date"}]},
        {"columns": [{"name": "a", "categories": [], "fill": float("nan")}]},
        {"columns": [{"name": "a", "categories": [], "fill": "3"}]},
        {"columns": [{"name": "a", "categories": ["x"], "kind": "number"}]},
        {"columns": [{"name": "a", "categories": ["x", "x"], "kind": "category"}]},
        {"columns": [{"name": "a\x1b", "categories": []}]},
        {"columns": [{"name": "a", "categories": [], "more": 1}]},
        {"id": None},
        {"id": 3},
        {"dropped": [3]},
        {"missing": 3},
        {"further": 1},
    ],
)
def test_what_is_damaged_is_refused(change: dict) -> None:
    with pytest.raises(FedquiltError, match=r"x.npz has a damaged description"):
        Encoding.from_dict({**ENCODING.to_dict(), **change}, "x.npz")
