"""The cells of a table as text, column by column: csv files by pyarrow, or by Python's csv module where it is not installed."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedquilt.common.read_limit import check_size
from fedquilt.errors import FedquiltError
from fedquilt.graphs.tables import dialect
from fedquilt.graphs.tables.dialect import Dialect, find_dialect
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.problems import Problems

CHECKED_ROWS = 2**16  # between two looks at how much was read
LONGEST_CELL = 131_072  # characters; Python's csv module has the same limit
_CELLS = 2**20  # of a csv file that are put together
_WIDEST_BY_PYARROW = 10_000  # columns; each takes kilobytes there, and a line of commas has very many
_ROW_BYTES = 100  # that a row takes beside its cells: its number, and a text that is made of its id
_END = "\0"  # between two cells of a column; a file that has one is refused

Column: TypeAlias = Callable[[int], list[str]]


@dataclass(frozen=True, eq=False)
class Cells:
    """A table as text.

    Attributes:
        path: its file.
        header: the names of the columns.
        rows: [R] int64, the line (of csv) or row (of parquet, from 1) of each row.
        dialect: how a csv file is written; None: it is parquet.
        empty: how many rows had nothing in any column; they are left out.
        column: gives the [R] cells of a column, by its number, without spaces around them.
        refused: how many rows were left out because they have another length.
    """

    path: Path
    header: list[str]
    rows: np.ndarray
    dialect: Dialect | None
    empty: int
    column: Column
    refused: int = 0

    def below(self, first: int) -> Cells:
        """The table without its first rows, such as a header that was read as one."""
        return replace(self, rows=self.rows[first:], column=lambda number: self.column(number)[first:])


def read_cells(path: Path, options: TableOptions, problems: Problems) -> Cells:
    """Read a csv or parquet file. A row of another length than the header's is a problem."""
    if path.suffix.lower() == ".parquet":
        return _from_parquet(path)
    try:
        found = find_dialect(path, options)
        header = _first_row(path, found)
        if not header:
            return Cells(path, [], np.zeros(0, dtype=np.int64), found, 0, lambda _: [])
        quick = len(header) <= _WIDEST_BY_PYARROW and _has_pyarrow()
        lines, column, refused = (_by_pyarrow if quick else _by_csv)(path, found, len(header), problems)
    except csv.Error as error:
        raise FedquiltError(f"{path} is not a sound csv file ({error}); check its quotes and separators.") from error
    except OSError as error:
        raise FedquiltError(
            f"{path} could not be opened ({error.strerror or error}); check that you may read it."
        ) from error
    return _without_empty(Cells(path, header, lines, found, 0, column, refused)).below(1)


def _without_empty(table: Cells) -> Cells:
    """The table without rows that have nothing in any column, such as blank lines and lines of separators only."""
    empty = np.arange(table.rows.size)
    for number in range(len(table.header)):
        if not empty.size:
            return table
        cells = table.column(number)
        empty = np.array([row for row in empty if not cells[row]], dtype=np.int64)
    kept = np.delete(np.arange(table.rows.size), empty)
    places = kept.tolist()

    def column(number: int) -> list[str]:
        cells = table.column(number)
        return [cells[place] for place in places]

    return replace(table, rows=table.rows[kept], empty=int(empty.size), column=column)


def _first_row(path: Path, found: Dialect) -> list[str]:
    with open(path, encoding=found.encoding, newline="") as file:
        return next(
            ([name.strip() for name in cells] for cells in csv.reader(file, delimiter=found.separator) if cells), []
        )


def _wrong_width(cells: int, width: int) -> str:
    return (
        f"it has {cells} columns but the header has {width}; make them agree, and put text with a separator in quotes"
    )


# --- csv by Python's csv module


def _by_csv(path: Path, found: Dialect, width: int, problems: Problems) -> tuple[np.ndarray, Column, int]:
    lines: list[int] = []
    # A column is stored as long texts that are split when it is asked for: a text for each cell takes 50 bytes and more.
    chunks: list[list[str]] = [[] for _ in range(width)]
    waiting: list[list[str]] = []
    size, most, refused = 0, max(1, _CELLS // width), 0

    def put() -> None:
        nonlocal size
        for chunk, cells in zip(chunks, zip(*waiting, strict=True), strict=True):
            chunk.append(_END.join(cell.strip() for cell in cells))
            size += len(chunk[-1])
        check_size(path, size + len(lines) * _ROW_BYTES)
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
                refused += 1
                problems.add(path, _wrong_width(len(cells), width), reader.line_num)
    if waiting:
        put()
    split = lambda number: list(chain(*(text.split(_END) for text in chunks[number])))  # noqa: E731
    return np.array(lines, dtype=np.int64), split, refused


# --- csv by pyarrow


def _has_pyarrow() -> bool:
    try:
        import pyarrow.csv  # noqa: F401
    except ImportError:
        return False
    return True


def _by_pyarrow(path: Path, found: Dialect, width: int, problems: Problems) -> tuple[np.ndarray, Column, int]:
    import pyarrow
    from pyarrow import csv as arrow

    wrong: list[tuple[int, int, str]] = []  # row, columns, text
    skipped: list[int] = []

    def refuse(row: Any) -> str:
        if row.text.strip(" \t\r\n" + found.separator):
            wrong.append((row.number, row.actual_columns, row.text))
        skipped.append(row.number)
        return "skip"

    names = [f"f{number}" for number in range(width)]
    longest = max(2**20, min(path.stat().st_size, dialect.LONGEST_LINE))
    try:
        reader = arrow.open_csv(
            path,
            arrow.ReadOptions(
                use_threads=False,  # else the numbers of rows are not known
                block_size=longest,
                column_names=names,
                encoding="utf8" if found.encoding == "utf-8-sig" else found.encoding,
            ),
            arrow.ParseOptions(
                delimiter=found.separator,
                newlines_in_values=True,
                ignore_empty_lines=False,  # counted, so that lines have their right numbers
                invalid_row_handler=refuse,
            ),
            # Every cell stays text: what a column is can be said only when all of it was seen.
            arrow.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()), strings_can_be_null=False),
        )
        batches, size, rows = [], 0, 0
        for batch in reader:
            size, rows = size + batch.nbytes, rows + batch.num_rows
            check_size(path, size + rows * _ROW_BYTES)
            batches.append(batch)
        table = pyarrow.Table.from_batches(batches, reader.schema)
    except pyarrow.ArrowException as error:
        raise csv.Error(str(error).splitlines()[0].rstrip(".")) from error
    lines = _line_numbers(table, skipped, wrong)
    for row, columns, _ in wrong:
        problems.add(path, _wrong_width(columns, width), lines[row])
    kept = np.delete(np.arange(1, len(lines)), np.array(skipped, dtype=np.int64) - 1)
    return lines[kept], lambda number: [cell.strip() for cell in table.column(number).to_pylist()], len(wrong)


def _line_numbers(table: Any, skipped: Sequence[int], wrong: Sequence[tuple[int, int, str]]) -> np.ndarray:
    """The line at which row r of the file ends, for r = 1, 2, ...: a cell in quotes may have several lines. [1 + rows]"""
    from pyarrow import compute

    rows = table.num_rows + len(skipped)
    more = np.zeros(rows + 1, dtype=np.int64)
    kept = np.delete(np.arange(1, rows + 1), np.array(skipped, dtype=np.int64) - 1)
    for column in table.columns:
        more[kept] += compute.count_substring(column, "\n").to_numpy()
    for row, _, text in wrong:
        more[row] += text.count("\n")
    return np.arange(rows + 1) + np.cumsum(more)


# --- parquet


def _from_parquet(path: Path) -> Cells:
    table = _parquet(path)
    rows = np.arange(1, table.num_rows + 1)
    found = Cells(
        path,
        [name.strip() for name in table.column_names],
        rows,
        None,
        0,
        lambda number: [_text(value) for value in table.column(number).to_pylist()],
    )
    return _without_empty(found)


def _parquet(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise FedquiltError(
            f"{path} needs pyarrow to be read; install it with `pip install 'fedquilt[tables]'` or save the "
            "table as csv."
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            # A column that repeats one value takes a few bytes in the file, however many rows it has.
            check_size(path, file.metadata.num_rows * file.metadata.num_columns * 8)
            batches, size = [], 0
            for batch in file.iter_batches(CHECKED_ROWS):
                size += batch.nbytes
                check_size(path, size)
                batches.append(batch)
            return pyarrow.Table.from_batches(batches, file.schema_arrow)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise FedquiltError(f"{path} is not a parquet file, or is damaged; write it again.") from error


def _text(value: Any) -> str:
    """Format a parquet cell as in a csv file. 3.0 becomes 3, because a column with gaps stores whole numbers as floats."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
