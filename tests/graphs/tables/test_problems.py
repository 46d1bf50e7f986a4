"""All problems of tables in one error."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError, ProblemsError
from fedquilt.graphs.tables.problems import MOST_SHOWN, Problems, listed, quoted

NODES, EDGES = Path("mine/nodes.csv"), Path("mine/edges.parquet")


def test_one_problem_is_one_sentence() -> None:
    problems = Problems(Path("mine"))
    problems.raise_any()
    problems.add(NODES, "it has no id", 7)
    with pytest.raises(FedquiltError) as caught:
        problems.raise_any()
    assert str(caught.value) == "mine/nodes.csv, line 7: it has no id."
    assert not isinstance(caught.value, ProblemsError)


def test_several_are_in_the_order_of_files_and_rows_and_the_same_is_told_once() -> None:
    problems = Problems(Path("mine"))
    for row in (9, 11):
        problems.add(NODES, "b", row)
    for row in range(20, 120):
        problems.add(NODES, "c", row)
    problems.add(EDGES, "d", 1)
    problems.add(NODES, "a")
    with pytest.raises(ProblemsError) as caught:
        problems.raise_any()
    assert caught.value.headline == "mine has 104 problems; correct them and try again:"
    assert caught.value.details == (
        "  nodes.csv: a.",
        "  nodes.csv, lines 9 and 11: b.",
        "  nodes.csv, lines 20, 21, 22, 23, 24 and 95 more: c.",
        "  edges.parquet, row 1: d.",
    )


def test_very_many_are_cut_short_and_counted() -> None:
    problems = Problems(Path("mine"))
    for row in range(5000):
        problems.add(NODES, f"problem {row}", row + 1)
    with pytest.raises(ProblemsError) as caught:
        problems.raise_any()
    assert len(caught.value.details) == MOST_SHOWN + 1
    assert caught.value.headline.startswith("mine has 5,000 problems")
    assert caught.value.details[-1] == "  and 4,980 more."


def test_quotes_are_short_and_safe() -> None:
    assert quoted("a\x1b[31m\nb") == "'a\\u001b[31m\\u000ab'"
    assert len(quoted("x" * 10_000)) < 80
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdefgh")) == "a, b, c, d, e, f, ..."
    assert listed([]) == "nothing"
