"""Pairs that a user asks about: from a csv file and from Python, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.runs.given_pairs import known_places, placed, read_pairs


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "pairs.csv").write_text(text)
    return tmp_path / "pairs.csv"


@pytest.mark.parametrize(
    "text",
    ["source,target\na,b\nb,c\n", "\ufeffsource;note;target\na;x;b\nb;;c\n", "target, source\nb, a\nc, b\n"],
)
def test_pairs_are_read_by_the_names_of_their_columns(text: str, tmp_path: Path) -> None:
    assert read_pairs(written(tmp_path, text)) == [("a", "b"), ("b", "c")]


def test_pairs_of_python() -> None:
    assert read_pairs([("a", "b"), (3, np.int64(4))]) == [("a", "b"), ("3", "4")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,b\n1,2\n", "needs one column 'source'; begin it with the line source,target"),
        ("source,source,target\n1,2,3\n", "needs one column 'source'"),
        ("source,target\n1,\n", "line 2: a pair needs a source and a target"),
        ("source,target\n", "has no pairs of nodes"),
    ],
)
def test_a_wrong_file_is_refused_with_a_sentence(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match=why):
        read_pairs(written(tmp_path, text))


def test_what_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match=r"none\.csv cannot be read: No such file"):
        read_pairs(tmp_path / "none.csv")
    (tmp_path / "bad.csv").write_bytes(b"source,target\n\xff,\xfe\n")
    with pytest.raises(FedquiltError, match=r"bad\.csv cannot be read: .*utf-8"):
        read_pairs(tmp_path / "bad.csv")
    for wrong in (["ab"], [("a", "b", "c")]):
        with pytest.raises(FedquiltError, match="is no pair of nodes"):
            read_pairs(wrong)  # type: ignore[arg-type]
    with pytest.raises(FedquiltError, match="There is no pair of nodes to predict for"):
        read_pairs([])


def test_pairs_are_found_by_ids_or_by_positions() -> None:
    places = known_places(np.array(["x", "y", "z"]), 3)
    assert placed([("z", "x")], places, "graph").tolist() == [[2], [0]]
    assert known_places(None, 2) == {"0": 0, "1": 1}
    with pytest.raises(FedquiltError, match="There is no node 'w' in the graph; write the ids of its nodes"):
        placed([("x", "w")], places, "the graph")
    with pytest.raises(FedquiltError, match="has the same node twice"):
        placed([("x", "x")], places, "the graph")
