"""The cells of a table as text, column by column, whatever read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from fedquilt.graphs.tables.dialect import Dialect

CHECKED_ROWS = 2**16  # between two looks at how much was read
ROW_BYTES = 100  # that a row takes beside its cells: its number, and a text that is made of its id
MOST_REFUSED = 1000  # rows of another length whose texts are known


class Store(Protocol):
    """The cells of all rows of a file."""

    def column(self, number: int, places: np.ndarray) -> list[str]:
        """The cells of a column in the rows at `places`, without spaces around them."""

    def numbers(self, number: int, places: np.ndarray) -> np.ndarray | None:
        """These cells as float64 where each is a plain finite number, such as -1.5e3; else None."""


@dataclass(frozen=True, eq=False)
class Cells:
    """A table as text.

    Attributes:
        path: its file.
        header: the names of the columns.
        rows: [R] int64, the line (of csv) or row (of parquet, from 1) of each row.
        dialect: how a csv file is written; None: it is parquet.
        store: the cells of all rows of the file.
        places: [R] int64, where in the store the rows are.
        empty: how many rows had nothing in any column; they are left out.
        refused: the texts in rows that were left out because they have another length: an edge to one of them is no further
            problem. None: there are too many.
    """

    path: Path
    header: list[str]
    rows: np.ndarray
    dialect: Dialect | None
    store: Store
    places: np.ndarray
    empty: int = 0
    refused: frozenset[str] | None = frozenset()

    def column(self, number: int) -> list[str]:
        """The [R] cells of a column, without spaces around them."""
        return self.store.column(number, self.places)

    def numbers(self, number: int) -> np.ndarray | None:
        """[R] float64 where every cell of a column is a plain finite number, such as -1.5e3; else None."""
        return self.store.numbers(number, self.places)


def wrong_width(cells: int, width: int) -> str:
    """What is wrong with a row of another length than the header's."""
    return (
        f"it has {cells} columns but the header has {width}; make them agree, and put text with a separator in quotes"
    )


def texts_of(rows: list[list[str]]) -> frozenset[str] | None:
    """The texts in rows that were refused; None where there are too many."""
    return None if len(rows) > MOST_REFUSED else frozenset(cell.strip() for row in rows for cell in row[:100])


def in_a_row(places: np.ndarray) -> bool:
    """Whether places follow one another without a gap."""
    return bool(places.size and places[-1] - places[0] + 1 == places.size)
