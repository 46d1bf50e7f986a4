"""Splits: sizes, disjointness, and that a seed decides them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.graphs import NONE, TEST, TRAIN, VAL, draw_split, format_split, given_split, parse_split
from fedquilt.graphs.build import build_graph
from fedquilt.graphs.graph import Graph

from .helpers import tiny


def labelled(count: int, unlabelled: int = 0) -> Graph:
    y = np.array([0] * count + [-1] * unlabelled)
    return build_graph("some", np.zeros((2, 0), int), np.ones((len(y), 1)), y)


@given(
    st.integers(20, 300),
    st.integers(0, 50),
    st.sampled_from(["20/40/40", "5/47.5/47.5", "60/20/20", "40/30/30", "10/10/10", "33.3/33.3/33.3"]),
    st.integers(0, 5),
)
def test_sizes_and_disjointness(count: int, unlabelled: int, text: str, seed: int) -> None:
    fractions = parse_split(text)
    parts = draw_split(labelled(count, unlabelled), fractions, seed)
    assert parts.dtype == np.int8
    assert (parts[count:] == NONE).all()
    sizes = [int((parts == part).sum()) for part in (TRAIN, VAL, TEST)]
    assert sizes[:2] == [round(share * count) for share in fractions[:2]]
    if text in ("10/10/10", "33.3/33.3/33.3"):
        assert abs(sizes[2] - fractions[2] * count) <= 1
    else:
        assert sum(sizes) == count


def test_seed_and_attempt_decide() -> None:
    graph = labelled(100)
    first = draw_split(graph, (0.2, 0.4, 0.4), 0)
    assert np.array_equal(first, draw_split(graph, (0.2, 0.4, 0.4), 0))
    assert not np.array_equal(first, draw_split(graph, (0.2, 0.4, 0.4), 1))
    assert not np.array_equal(first, draw_split(graph, (0.2, 0.4, 0.4), 0, attempt=1))


def test_too_few_nodes() -> None:
    with pytest.raises(FedquiltError, match="some has 2 labelled nodes, too few to split 20/40/40"):
        draw_split(labelled(2, 50), (0.2, 0.4, 0.4), 0)


def test_given() -> None:
    masks = {part: np.arange(4) == number for number, part in enumerate(("train", "val", "test"))}
    assert given_split(tiny(masks=masks)).tolist() == [TRAIN, VAL, TEST, NONE]
    with pytest.raises(FedquiltError, match="tiny has no given split; add train, val and test masks"):
        given_split(tiny())
    masks["test"] = np.arange(4) == 3  # the unlabelled node
    with pytest.raises(FedquiltError, match="a given split without a labelled test node"):
        given_split(tiny(masks=masks))


def test_parse() -> None:
    assert parse_split("20/40/40") == (0.2, 0.4, 0.4)
    assert format_split(parse_split("5/47.5/47.5")) == "5/47.5/47.5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("20/80", "not three percentages"),
        ("a/b/c", "not three percentages"),
        ("", "not three percentages"),
        ("nan/1/1", "not three percentages"),
        ("0/50/50", "leaves a part empty"),
        ("-10/50/50", "leaves a part empty"),
        ("50/50/50", "sums to 150; the three percentages must not exceed 100"),
    ],
)
def test_parse_faults(text: str, message: str) -> None:
    with pytest.raises(FedquiltError, match=message):
        parse_split(text)
