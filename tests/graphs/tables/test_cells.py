"""A table as text, and the rows of it that are refused."""

from __future__ import annotations

import numpy as np

from fedquilt.graphs.tables.cells import MOST_REFUSED, in_a_row, texts_of, wrong_width


def test_places_in_a_row() -> None:
    assert in_a_row(np.array([3, 4, 5]))
    assert not in_a_row(np.array([3, 5]))
    assert not in_a_row(np.zeros(0, dtype=int))


def test_texts_of_refused_rows_are_bounded() -> None:
    assert texts_of([[" a", "b "], ["a"]]) == {"a", "b"}
    assert texts_of([["a"]] * (MOST_REFUSED + 1)) is None
    assert len(texts_of([[str(number) for number in range(10_000)]]) or ()) == 100
    assert wrong_width(2, 3).startswith("it has 2 columns but the header has 3;")
