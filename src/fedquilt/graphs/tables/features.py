"""The features of a table: its columns as numbers, and what became of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedquilt.common.read_limit import check_size
from fedquilt.graphs.encoding import Column, Encoding
from fedquilt.graphs.tables.cells import Cells
from fedquilt.graphs.tables.columns import Columns
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.problems import Problems, quoted
from fedquilt.graphs.tables.values import boolean, is_missing, number

_COPIES = 3  # of the features that there are at once while they are checked


@dataclass(frozen=True)
class ColumnNote:
    """What became of a column, for people.

    Attributes:
        name: the column's name.
        kind: what it is: "id", "label", "number", "yes/no", "category", "left out", ...
        text: what it became.
    """

    name: str
    kind: str
    text: str


@dataclass(frozen=True, eq=False)
class TableFeatures:
    """The features of a table.

    Attributes:
        x: [N, F] float32.
        columns: how they were made.
        dropped: the columns that had no value at all.
        notes: what became of each column.
        decimal: the decimal sign of the table.
    """

    x: np.ndarray
    columns: tuple[Column, ...]
    dropped: tuple[str, ...]
    notes: tuple[ColumnNote, ...]
    decimal: str


def read_features(
    table: Cells,
    numbers: list[int],
    options: TableOptions,
    further: tuple[str, ...],
    problems: Problems,
    encoding: Encoding | None,
) -> TableFeatures:
    """The features of the columns with these numbers, in this order; with an `encoding`, made as it says.

    Args:
        table: the cells.
        numbers: which columns.
        options: how to read them.
        further: further texts that mean a missing value.
        problems: gets all that is wrong with them.
        encoding: None: as they look.
    """
    columns = Columns(table, numbers, options, further, problems)
    if encoding is None:
        found = {at: columns.describe(at) for at in numbers}
        kept = {at: column for at, column in found.items() if column is not None}
        dropped = tuple(columns.name(at) for at in numbers if at not in kept)
    else:
        place = {columns.name(at): at for at in numbers}
        kept = {place[column.name]: column for column in encoding.columns}
        dropped = ()
    return _Encoder(table, columns, problems).encode(kept, dropped)


class _Encoder:
    """Makes numbers of columns that are known."""

    def __init__(self, table: Cells, columns: Columns, problems: Problems) -> None:
        self._table, self._columns, self._problems = table, columns, problems

    def encode(self, kept: dict[int, Column], dropped: tuple[str, ...]) -> TableFeatures:
        rows, notes = self._table.rows.size, []
        width = sum(len(column.feature_names) for column in kept.values())
        check_size(self._table.path, rows * width * 4 * _COPIES)
        x = np.zeros((rows, width), dtype=np.float32)
        start = 0
        for at, column in kept.items():
            part = x[:, start : (start := start + len(column.feature_names))]
            if column.kind == "category":
                notes.append(self._put_categories(at, column, part))
            else:
                notes.append(self._put_numbers(at, column, part))
        notes += [ColumnNote(name, "left out", "no row has a value") for name in dropped]
        return TableFeatures(x, tuple(kept.values()), dropped, tuple(notes), self._columns.decimal)

    def _put_numbers(self, at: int, column: Column, x: np.ndarray) -> ColumnNote:
        kind = "yes/no" if column.kind == "boolean" else "number"
        if at in self._columns.quick and column.kind == "number":
            x[:, 0] = self._columns.quick[at]
            return ColumnNote(column.name, kind, f"'{column.name}'" + (" and an indicator" if column.indicator else ""))
        known: dict[str, float] = {}
        wrong: set[str] = set()
        cells = self._table.column(at)
        for cell in self._columns.counts[at] if at in self._columns.counts else set(cells):
            if is_missing(cell, self._columns.further, True):
                continue
            value = boolean(cell) if column.kind == "boolean" else number(cell, self._columns.decimal)
            if value is None:
                wrong.add(cell)
            else:
                known[cell] = value
        values = np.array([known.get(cell, np.nan) for cell in cells], dtype=np.float64)
        if wrong:
            self._refuse_cells(at, column, cells, wrong)
        self._columns.check_sizes(at, values)
        with np.errstate(over="ignore"):
            column.encode_numbers(values, x)
        gone = int(np.isnan(values).sum())
        text = f"'{column.name}'"
        if gone:
            text += f"; {gone:,} missing became the mean, {column.fill:.4g}"
            text += f", with '{column.feature_names[-1]}'" if column.indicator else ""
        return ColumnNote(column.name, kind, text)

    def _refuse_cells(self, at: int, column: Column, cells: list[str], wrong: set[str]) -> None:
        what = "a yes or no" if column.kind == "boolean" else "a number"
        how = "correct it or leave it empty"
        if column.kind == "number":
            how += ", or name the column under categories or drop in graph.yaml"
        for row, cell in enumerate(cells):
            if cell in wrong:
                hint = ""
                if column.kind == "number" and number(cell, "," if self._columns.decimal == "." else ".") is not None:
                    hint = f" (the table's decimal sign is '{self._columns.decimal}')"
                self._problems.add(
                    self._table.path,
                    f"{quoted(cell)} in the column {quoted(column.name)} is not {what}{hint}; {how}",
                    int(self._table.rows[row]),
                )

    def _put_categories(self, at: int, column: Column, x: np.ndarray) -> ColumnNote:
        cells = self._table.column(at)
        gone = {
            cell
            for cell in set(cells)
            if is_missing(cell, self._columns.further, False) and cell not in column.categories
        }
        unknown = column.encode_categories([None if cell in gone else cell for cell in cells], x)
        text = f"{len(column.categories)} features '{column.name}=...'"
        if unknown:
            beyond = len(set(cells) - gone - set(column.categories))
            values = f"{beyond:,} further value{'s' if beyond > 1 else ''} ({unknown:,} rows)"
            text += f", '{column.name}=other' for {values}" if column.other else f"; {values} became none of them"
        missing = sum(cell in gone for cell in cells)
        if missing:
            text += f"; {missing:,} missing" + (f", '{column.feature_names[-1]}'" if column.indicator else "")
        return ColumnNote(column.name, "category", text)
