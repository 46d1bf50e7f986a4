"""The cells of csv and parquet files, read by pyarrow."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.common.read_limit import check_size
from fedquilt.errors import FedquiltError
from fedquilt.graphs.tables import dialect
from fedquilt.graphs.tables.cells import CHECKED_ROWS, ROW_BYTES, Cells, in_a_row, texts_of, wrong_width
from fedquilt.graphs.tables.dialect import Dialect
from fedquilt.graphs.tables.problems import Problems
from fedquilt.graphs.tables.values import quick_numbers

_LONGEST_KEPT = 131_072  # characters of a row that is refused


def read_csv(path: Path, header: list[str], found: Dialect, problems: Problems) -> Cells:
    """Read a csv file, its header as the first row. `csv.Error` where it is none."""
    import pyarrow
    from pyarrow import csv as arrow

    wrong: list[tuple[int, int, str]] = []  # row, columns, text
    skipped: list[int] = []

    def refuse(row: Any) -> str:
        if row.text.strip(" \t\r\n" + found.separator):
            wrong.append((row.number, row.actual_columns, row.text[:_LONGEST_KEPT]))
        skipped.append(row.number)
        return "skip"

    names = [f"f{number}" for number in range(len(header))]
    read_options = arrow.ReadOptions(
        use_threads=False,  # else the numbers of rows are not known
        block_size=max(2**20, min(path.stat().st_size, dialect.LONGEST_LINE)),
        column_names=names,
        encoding="utf8" if found.encoding == "utf-8-sig" else found.encoding,
    )
    parse_options = arrow.ParseOptions(
        delimiter=found.separator,
        newlines_in_values=True,
        ignore_empty_lines=False,  # counted, so that lines have their right numbers
        invalid_row_handler=refuse,
    )
    # Every cell stays text: what a column is can be said only when all of it was seen.
    as_text = arrow.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()), strings_can_be_null=False)
    try:
        reader = arrow.open_csv(path, read_options, parse_options, as_text)
        batches, size, rows = [], 0, 0
        for batch in reader:
            size, rows = size + batch.nbytes, rows + batch.num_rows
            check_size(path, size + rows * ROW_BYTES)
            batches.append(batch)
        table = pyarrow.Table.from_batches(batches, reader.schema)
    except pyarrow.ArrowException as error:
        raise csv.Error(str(error).splitlines()[0].rstrip(".")) from error
    lines = _line_numbers(table, skipped, wrong)
    for row, columns, _ in wrong:
        problems.add(path, wrong_width(columns, len(header)), int(lines[row]))
    texts = [[cell for row in csv.reader([text], delimiter=found.separator) for cell in row] for _, _, text in wrong]
    kept = _kept(table.num_rows, skipped)
    return Cells(path, header, lines[kept], found, _TextStore(table), np.arange(kept.size), refused=texts_of(texts))


def _kept(rows: int, skipped: Sequence[int]) -> np.ndarray:
    """The numbers, from 1, of the rows of a file that were not skipped."""
    return np.delete(np.arange(1, rows + len(skipped) + 1), np.array(skipped, dtype=np.int64) - 1)


def _line_numbers(table: Any, skipped: Sequence[int], wrong: Sequence[tuple[int, int, str]]) -> np.ndarray:
    """The line at which row r of the file ends, for r = 1, 2, ...: a cell in quotes may have several lines. [1 + rows]"""
    from pyarrow import compute

    more = np.zeros(table.num_rows + len(skipped) + 1, dtype=np.int64)
    kept = _kept(table.num_rows, skipped)
    for column in table.columns:
        more[kept] += compute.count_substring(column, "\n").to_numpy()
    for row, _, text in wrong:
        more[row] += text.count("\n")
    return np.arange(more.size) + np.cumsum(more)


class _TextStore:
    """A table of texts."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def column(self, number: int, places: np.ndarray) -> list[str]:
        """See `Store`."""
        return [cell.strip() for cell in _some(self._table.column(number), places).to_pylist()]

    def numbers(self, number: int, places: np.ndarray) -> np.ndarray | None:
        """See `Store`."""
        import pyarrow
        from pyarrow import compute

        cells = compute.utf8_trim_whitespace(_some(self._table.column(number), places))
        try:
            values = np.asarray(compute.cast(cells, pyarrow.float64()).to_numpy(), dtype=np.float64)
        except pyarrow.ArrowException:
            return None
        return values if np.isfinite(values).all() else None


def _some(column: Any, places: np.ndarray) -> Any:
    return column.slice(int(places[0]), places.size) if in_a_row(places) else column.take(places)


# --- parquet


class _ValueStore:
    """A table of values of any type."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def column(self, number: int, places: np.ndarray) -> list[str]:
        """See `Store`."""
        return [_text(value) for value in _some(self._table.column(number), places).to_pylist()]

    def numbers(self, number: int, places: np.ndarray) -> np.ndarray | None:
        """See `Store`."""
        return quick_numbers(self.column(number, places))


def read_parquet(path: Path) -> Cells:
    """Read a parquet file."""
    table = _parquet(path)
    header = [name.strip() for name in table.column_names]
    places = np.arange(table.num_rows)
    return Cells(path, header, places + 1, None, _ValueStore(table), places)


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
