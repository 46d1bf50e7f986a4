"""Columns of a table as features: what each column is, and its numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from fedquilt.common.read_limit import check_size
from fedquilt.graphs.encoding import Column, Encoding, Kind
from fedquilt.graphs.tables.cells import Cells
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.problems import Problems, quoted
from fedquilt.graphs.tables.values import (
    boolean,
    find_decimal,
    is_boolean,
    is_date,
    is_missing,
    number,
)
from fedquilt.graphs.validate import LARGEST_FEATURE

LONGEST_CATEGORY = 200  # characters
_COPIES = 3  # of the features that there are at once while they are checked
_LEAVE_OUT = "leave it out with --drop or under drop in graph.yaml"


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
class Features:
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


class FeatureReader:
    """Reads the feature columns of one table: first what they are, then their numbers."""

    def __init__(self, table: Cells, options: TableOptions, further: tuple[str, ...], problems: Problems) -> None:
        self._table, self._options, self._problems = table, options, problems
        self._further = frozenset(text.lower() for text in further)
        self._quick: dict[int, np.ndarray] = {}  # by column: the numbers, as float32
        self._means: dict[int, float] = {}
        self._counts: dict[int, Counter[str]] = {}  # by column: how often each text occurs, where these are not numbers
        self.decimal = "."

    def read(self, numbers: list[int], encoding: Encoding | None) -> Features:
        """The features of the columns with these numbers, in this order; with an `encoding`, made as it says."""
        self._look(numbers)
        if encoding is None:
            found = {at: self._describe(at) for at in numbers}
            kept = {at: column for at, column in found.items() if column is not None}
            dropped = tuple(self._name(at) for at in numbers if at not in kept)
        else:
            place = {self._name(at): at for at in numbers}
            kept = {place[column.name]: column for column in encoding.columns}
            dropped = ()
        return self._encode(kept, dropped)

    def _name(self, at: int) -> str:
        return self._table.header[at]

    def _look(self, numbers: list[int]) -> None:
        """Read the columns that are plain numbers, count the texts of the others, and find the decimal sign."""
        as_text = self._options.values
        size = 0
        for at in numbers:
            # A text such as -999 may be a number and yet mean that there is none.
            as_numbers = not self._further and self._name(at) not in as_text
            values = self._table.numbers(at) if as_numbers else None
            if values is None:
                self._counts[at] = Counter(self._table.column(at))
                size += sum(map(len, self._counts[at])) + 100 * len(self._counts[at])
            else:
                self._means[at] = float(values.mean()) if values.size else 0.0
                self._check_sizes(at, values)
                with np.errstate(over="ignore"):
                    self._quick[at] = values.astype(np.float32)
                size += self._quick[at].nbytes
            check_size(self._table.path, size)
        self.decimal = self._options.decimal or self._find_decimal()

    def _find_decimal(self) -> str:
        if not any("," in cell for counts in self._counts.values() for cell in counts):
            return "."
        # Columns of plain numbers have points, if anything.
        points = sum("." in cell for at in self._quick for cell in self._table.column(at)[:1000])
        return find_decimal(self._counts.values(), points)

    def _check_sizes(self, at: int, values: np.ndarray) -> None:
        for row in np.flatnonzero(~(np.abs(values) <= LARGEST_FEATURE) & ~np.isnan(values)):
            self._problems.add(
                self._table.path,
                f"a number in the column {quoted(self._name(at))} is beyond {LARGEST_FEATURE:g}, where sums overflow in "
                "single precision; scale the column first",
                int(self._table.rows[row]),
            )

    # --- what a column is

    def _describe(self, at: int) -> Column | None:
        """What a column is; None: it has no value at all. A column that cannot be a feature is a problem."""
        name, options = self._name(at), self._options
        always = name in options.indicators
        if at in self._quick:
            return Column(name, "number", self._means[at], always)
        kind = self._kind(at)
        there = self._there(at, kind)
        total = sum(self._counts[at].values())
        gone = total - sum(there.values())
        if not there and not (always or options.values.get(name)):
            return None
        indicator = always or gone > 0
        if kind == "category":
            values = options.values.get(name)
            kept = values if values is not None else self._most_frequent(at, there)
            # With values that are given, every table has the same features, whatever is in it.
            other = values is not None or bool(set(there) - set(kept))
            return Column(name, kind, 0.0, indicator, kept, other)
        read = {cell: boolean(cell) if kind == "boolean" else number(cell, self.decimal) for cell in there}
        pairs = [(value, there[cell]) for cell, value in read.items() if value is not None]
        counted = sum(count for _, count in pairs)
        fill = sum(value * count for value, count in pairs) / counted if counted else 0.0
        return Column(name, kind, float(fill), indicator)

    def _there(self, at: int, kind: Kind) -> Counter[str]:
        """The texts of a column that are no missing values, with their counts."""
        return Counter(
            {
                cell: count
                for cell, count in self._counts[at].items()
                if not is_missing(cell, self._further, kind != "category")
            }
        )

    def _kind(self, at: int) -> Kind:
        name = self._name(at)
        if name in self._options.values:
            return "category"
        there = self._there(at, "number")
        present = sum(there.values())
        if name in self._options.numeric:
            return "number"
        if is_boolean(there) and there:
            return "boolean"
        dates = sum(count for cell, count in there.items() if is_date(cell))
        if present and 2 * dates >= present:
            self._refuse_dates(at, next(cell for cell in there if is_date(cell)))
            return "category"
        numbers = sum(count for cell, count in there.items() if number(cell, self.decimal) is not None)
        return "number" if 2 * numbers >= present else "category"

    def _refuse_dates(self, at: int, example: str) -> None:
        row = self._table.column(at).index(example)
        self._counts[at] = Counter()  # one problem is enough
        self._problems.add(
            self._table.path,
            f"the column {quoted(self._name(at))} has dates, such as {quoted(example)}; make a number of them first, such as "
            f"an age or the days since a first day, or {_LEAVE_OUT}",
            int(self._table.rows[row]),
        )

    def _most_frequent(self, at: int, there: Counter[str]) -> tuple[str, ...]:
        """The categories that get a feature, in the order of names. Texts that are no categories are a problem."""
        cap, name = self._options.cap, self._name(at)
        present, once = sum(there.values()), sum(count == 1 for count in there.values())
        if len(there) > cap and 2 * once >= present and name not in self._options.values:
            self._problems.add(
                self._table.path,
                f"the column {quoted(name)} has {len(there):,} different texts in {present:,} rows, so it is a name or free "
                f"text and no category; {_LEAVE_OUT}, or name it under categories",
            )
        elif (longest := max(there, key=len, default="")) and len(longest) > LONGEST_CATEGORY:
            self._problems.add(
                self._table.path,
                f"the column {quoted(name)} has a text of {len(longest):,} characters, which is no category; {_LEAVE_OUT}",
            )
        ranked = sorted(there, key=lambda cell: (-there[cell], cell))
        return tuple(sorted(ranked[:cap]))

    # --- the numbers

    def _encode(self, kept: dict[int, Column], dropped: tuple[str, ...]) -> Features:
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
        return Features(x, tuple(kept.values()), dropped, tuple(notes), self.decimal)

    def _put_numbers(self, at: int, column: Column, x: np.ndarray) -> ColumnNote:
        kind = "yes/no" if column.kind == "boolean" else "number"
        if at in self._quick and column.kind == "number":
            x[:, 0] = self._quick[at]
            return ColumnNote(column.name, kind, f"'{column.name}'" + (" and an indicator" if column.indicator else ""))
        known: dict[str, float] = {}
        wrong: set[str] = set()
        cells = self._table.column(at)
        for cell in self._counts[at] if at in self._counts else set(cells):
            if is_missing(cell, self._further, True):
                continue
            value = boolean(cell) if column.kind == "boolean" else number(cell, self.decimal)
            if value is None:
                wrong.add(cell)
            else:
                known[cell] = value
        values = np.array([known.get(cell, np.nan) for cell in cells], dtype=np.float64)
        if wrong:
            self._refuse_cells(at, column, cells, wrong)
        self._check_sizes(at, values)
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
                if column.kind == "number" and number(cell, "," if self.decimal == "." else ".") is not None:
                    hint = f" (the table's decimal sign is '{self.decimal}')"
                self._problems.add(
                    self._table.path,
                    f"{quoted(cell)} in the column {quoted(column.name)} is not {what}{hint}; {how}",
                    int(self._table.rows[row]),
                )

    def _put_categories(self, at: int, column: Column, x: np.ndarray) -> ColumnNote:
        cells = self._table.column(at)
        gone = {cell for cell in set(cells) if is_missing(cell, self._further, False) and cell not in column.categories}
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
