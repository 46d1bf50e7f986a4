"""Read a table as text: csv files by pyarrow, or by Python's csv module where it is not installed; parquet by pyarrow."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from fedquilt.common.read_limit import check_size
from fedquilt.errors import FedquiltError
from fedquilt.graphs.tables.arrow_cells import read_csv, read_parquet
from fedquilt.graphs.tables.cells import CHECKED_ROWS, MOST_REFUSED, ROW_BYTES, Cells, in_a_row, texts_of, wrong_width
from fedquilt.graphs.tables.dialect import Dialect, find_dialect
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.problems import Problems
from fedquilt.graphs.tables.values import quick_numbers

_CELLS = 2**20  # of a csv file that are put together
_WIDEST_BY_PYARROW = 10_000  # columns; each takes kilobytes there, and a line of commas has very many
_END = "\0"  # between two cells of a column; a file that has one is refused


def read_cells(path: Path, options: TableOptions, problems: Problems) -> Cells:
    """Read a csv or parquet file. A row of another length than the header's is a problem."""
    if path.suffix.lower() == ".parquet":
        return _without_empty(read_parquet(path))
    try:
        found = find_dialect(path, options)
        header = _first_row(path, found)
        if not header:
            none = np.zeros(0, dtype=np.int64)
            return Cells(path, [], none, found, _PythonStore([]), none)
        by_pyarrow = len(header) <= _WIDEST_BY_PYARROW and _has_pyarrow()
        table = _without_empty((read_csv if by_pyarrow else _by_csv)(path, header, found, problems))
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
                if len(refused) <= MOST_REFUSED:
                    refused.append(cells)
                problems.add(path, wrong_width(len(cells), width), reader.line_num)
    if waiting:
        put()
    rows = np.array(lines, dtype=np.int64)
    store = _PythonStore(chunks)
    return Cells(path, header, rows, found, store, np.arange(rows.size), refused=texts_of(refused))


def _has_pyarrow() -> bool:
    try:
        import pyarrow.csv  # noqa: F401
    except ImportError:
        return False
    return True
