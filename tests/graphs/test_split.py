"""Splits: sizes, disjointness, and that a seed decides them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import (
    NONE,
    TEST,
    TRAIN,
    VAL,
    Folds,
    Given,
    Shares,
    draw_split,
    format_split,
    given_split,
    parse_split,
)
from support.graphs import tiny


def labelled(count: int, unlabelled: int = 0) -> Graph:
    y = np.array([0] * count + [-1] * unlabelled)
    return Graph.from_arrays("some", np.zeros((2, 0), int), np.ones((len(y), 1)), y)


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


# -- folds -------------------------------------------------------------------------------------------


@given(st.integers(12, 200), st.integers(0, 20), st.integers(3, 10), st.integers(0, 3), st.integers(0, 2))
def test_folds_take_turns(count: int, unlabelled: int, folds: int, grouping: int, attempt: int) -> None:
    """Over the seeds of one grouping, each labelled node tests once and validates once, in the run before."""
    graph = labelled(count, unlabelled)
    seeds = range(grouping * folds, (grouping + 1) * folds)
    runs = np.stack([Folds(folds).draw(graph, seed, attempt) for seed in seeds])
    assert runs.dtype == np.int8
    assert (runs[:, count:] == NONE).all()
    own = runs[:, :count]
    assert ((own == TEST).sum(axis=0) == 1).all()
    assert ((own == VAL).sum(axis=0) == 1).all()
    assert ((own == TRAIN).sum(axis=0) == folds - 2).all()
    assert np.array_equal(np.roll(own == TEST, -1, axis=0), own == VAL)
    sizes = (own == TEST).sum(axis=1)
    assert sizes.max() - sizes.min() <= 1


def test_each_grouping_and_attempt_is_another_one() -> None:
    graph = labelled(100)
    first = Folds(5).draw(graph, 0)
    assert np.array_equal(first, Folds(5).draw(graph, 0))
    assert not np.array_equal(first, Folds(5).draw(graph, 5))
    assert not np.array_equal(first, Folds(5).draw(graph, 0, attempt=1))
    assert not np.array_equal(first == TEST, Folds(4).draw(graph, 0) == TEST)


def test_too_few_nodes_for_the_folds() -> None:
    assert sorted(Folds(5).draw(labelled(5), 0)) == [TRAIN, TRAIN, TRAIN, VAL, TEST]
    with pytest.raises(FedquiltError, match="some has 4 labelled nodes, too few for 5 folds; label more"):
        Folds(5).draw(labelled(4, 50), 0)


# -- how a split is written --------------------------------------------------------------------------


def test_parse() -> None:
    assert parse_split("20/40/40") == Shares(0.2, 0.4, 0.4) == (0.2, 0.4, 0.4)
    assert parse_split("5fold") == Folds(5)
    assert parse_split("given") == Given()
    assert format_split(parse_split("5/47.5/47.5")) == "5/47.5/47.5"


def test_a_split_draws_what_its_name_says() -> None:
    graph = labelled(100)
    assert np.array_equal(parse_split("20/40/40").draw(graph, 3, 1), draw_split(graph, (0.2, 0.4, 0.4), 3, 1))
    masks = {part: np.arange(4) == number for number, part in enumerate(("train", "val", "test"))}
    assert np.array_equal(parse_split("given").draw(tiny(masks=masks), 3, 1), given_split(tiny(masks=masks)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("20/80", "not three percentages"),
        ("a/b/c", "not three percentages"),
        ("", "not three percentages"),
        ("nan/1/1", "not three percentages"),
        ("0/50/50", "leaves a part empty"),
        ("-10/50/50", "leaves a part empty"),
        ("5-fold", "not three percentages; write train/val/test, such as 20/40/40, or 5fold, or given"),
        ("2fold", "The split '2fold' has too few folds to train, validate and test; write 3fold or more"),
        ("50/50/50", "sums to 150; the three percentages must not exceed 100"),
    ],
)
def test_parse_faults(text: str, message: str) -> None:
    with pytest.raises(FedquiltError, match=message):
        parse_split(text)


@given(seed=st.integers(0, 50), text=st.sampled_from(["20/40/40", "60/20/20", "30/30/30", "5fold", "3fold"]))
def test_copies_of_one_thing_are_in_one_part(seed: int, text: str) -> None:
    rng = np.random.default_rng(seed)
    copies = rng.integers(0, 30, 200)
    y = np.where(rng.random(200) < 0.1, -1, rng.integers(0, 3, 200))
    graph = replace(Graph.from_arrays("copied", np.zeros((2, 0)), np.ones((200, 2)), y), copies=copies)
    parts = parse_split(text).draw(graph, seed)
    assert set(parts[y < 0]) <= {NONE}
    things = np.unique(copies[y >= 0])
    each = [set(parts[(copies == thing) & (y >= 0)]) for thing in things]
    assert all(len(part) == 1 for part in each)
    # As many things are in each part as nodes would be, were each a thing of its own.
    alone = parse_split(text).draw(
        Graph.from_arrays("alone", np.zeros((2, 0)), np.ones((len(things), 2)), things % 3), seed
    )
    assert sorted(part.pop() for part in each) == sorted(alone)


def test_the_numbers_of_copies_may_exceed_the_nodes() -> None:
    """As in a part of a larger graph; only who has the same number matters."""
    graph = labelled(12)
    small, large = np.arange(12) // 2, np.arange(12) // 2 * 1000
    for text in ("34/33/33", "3fold"):
        drawn = [parse_split(text).draw(replace(graph, copies=copies), 0) for copies in (small, large)]
        assert np.array_equal(*drawn)
