"""The cells of a table as text, column by column: csv files by pyarrow, or by Python's csv module where it is not installed."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np

from fedquilt.common.read_limit import check_size
from fedquilt.errors import FedquiltError
from fedquilt.graphs.tables.dialect import Dialect, find_dialect
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.problems import Problems
from fedquilt.graphs.tables.values import quick_numbers

CHECKED_ROWS = 2**16  # between two looks at how much was read
ROW_BYTES = 100  # that a row takes beside its cells: its number, and a text that is made of its id
_CELLS = 2**20  # of a csv file that are put together
_WIDEST_BY_PYARROW = 10_000  # columns; each takes kilobytes there, and a line of commas has very many
_MOST_REFUSED = 1000  # rows of another length whose texts are known
_END = "\0"  # between two cells of a column; a file that has one is refused


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


def read_cells(path: Path, options: TableOptions, problems: Problems) -> Cells:
    """Read a csv or parquet file. A row of another length than the header's is a problem."""
    if path.suffix.lower() == ".parquet":
        from fedquilt.graphs.tables.arrow_cells import read_parquet

        return _without_empty(read_parquet(path))
    try:
        found = find_dialect(path, options)
        header = _first_row(path, found)
        if not header:
            none = np.zeros(0, dtype=np.int64)
            return Cells(path, [], none, found, _PythonStore([]), none)
        by_pyarrow = len(header) <= _WIDEST_BY_PYARROW and _has_pyarrow()
        table = _without_empty((_by_pyarrow if by_pyarrow else _by_csv)(path, header, found, problems))
    except csv.Error as error:
        raise FedquiltError(f"{path} is not a sound csv file ({error}); check its quotes and separators.") from error
    except OSError as error:
        raise FedquiltError(
            f"{path} could not be opened ({error.strerror or error}); check that you may read it."
        ) from error
    return replace(table, rows=table.rows[1:], places=table.places[1:])  # below the header


def _without_empty(table: Cells) -> Cells:
    """The table without rows that have nothing in any column, such as blank lines and lines of separators only."""
    empty = np.arange(table.rows.size)
    for number in range(len(table.header)):
        if not empty.size:
            return table
        cells = table.column(number)
        empty = np.array([row for row in empty if not cells[row]], dtype=np.int64)
    kept = np.delete(np.arange(table.rows.size), empty)
    return replace(table, rows=table.rows[kept], places=table.places[kept], empty=int(empty.size))


def _first_row(path: Path, found: Dialect) -> list[str]:
    with open(path, encoding=found.encoding, newline="") as file:
        rows = csv.reader(file, delimiter=found.separator)
        return next(([name.strip() for name in cells] for cells in rows if cells), [])


def wrong_width(cells: int, width: int) -> str:
    """What is wrong with a row of another length than the header's."""
    return (
        f"it has {cells} columns but the header has {width}; make them agree, and put text with a separator in quotes"
    )


def texts_of(rows: list[list[str]]) -> frozenset[str] | None:
    """The texts in rows that were refused; None where there are too many."""
    return None if len(rows) > _MOST_REFUSED else frozenset(cell.strip() for row in rows for cell in row[:100])


# --- by Python's csv module


class _PythonStore:
    """Columns as long texts that are split when they are asked for: a text for each cell would take 50 bytes and more."""

    def __init__(self, chunks: list[list[str]]) -> None:
        self._chunks = chunks

    def column(self, number: int, places: np.ndarray) -> list[str]:
        """See `Store`."""
        cells = list(chain(*(text.split(_END) for text in self._chunks[number])))
        return cells[places[0] : places[-1] + 1] if in_a_row(places) else [cells[place] for place in places.tolist()]

    def numbers(self, number: int, places: np.ndarray) -> np.ndarray | None:
        """See `Store`."""
        return quick_numbers(self.column(number, places))


def in_a_row(places: np.ndarray) -> bool:
    """Whether places follow one another without a gap."""
    return bool(places.size and places[-1] - places[0] + 1 == places.size)


def _by_csv(path: Path, header: list[str], found: Dialect, problems: Problems) -> Cells:
    width = len(header)
    lines: list[int] = []
    chunks: list[list[str]] = [[] for _ in range(width)]
    waiting: list[list[str]] = []
    refused: list[list[str]] = []
    size, most = 0, max(1, _CELLS // width)

    def put() -> None:
        nonlocal size
        for chunk, cells in zip(chunks, zip(*waiting, strict=True), strict=True):
            chunk.append(_END.join(cell.strip() for cell in cells))
            size += len(chunk[-1])
        check_size(path, size + len(lines) * ROW_BYTES)
        waiting.clear()

    with open(path, encoding=found.encoding, newline="") as file:
        reader = csv.reader(file, delimiter=found.separator, strict=True)
        for cells in reader:
            if len(cells) == width:
                lines.append(reader.line_num)
                waiting.append(cells)
                if len(waiting) == most or len(lines) % CHECKED_ROWS == 0:
                    put()
            elif any(cells):
                if len(refused) <= _MOST_REFUSED:
                    refused.append(cells)
                problems.add(path, wrong_width(len(cells), width), reader.line_num)
    if waiting:
        put()
    rows = np.array(lines, dtype=np.int64)
    store = _PythonStore(chunks)
    return Cells(path, header, rows, found, store, np.arange(rows.size), refused=texts_of(refused))


# --- by pyarrow


def _has_pyarrow() -> bool:
    try:
        import pyarrow.csv  # noqa: F401
    except ImportError:
        return False
    return True


def _by_pyarrow(path: Path, header: list[str], found: Dialect, problems: Problems) -> Cells:
    from fedquilt.graphs.tables.arrow_cells import read_csv

    return read_csv(path, header, found, problems)
