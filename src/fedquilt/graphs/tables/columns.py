"""Columns of a table that may be features: what each of them is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from fedquilt.common.read_limit import check_size
from fedquilt.graphs.encoding import Column, Kind
from fedquilt.graphs.tables.cells import Cells
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.problems import Problems, quoted
from fedquilt.graphs.tables.values import boolean, find_decimal, is_boolean, is_date, is_missing, number
from fedquilt.graphs.validate import LARGEST_FEATURE

LONGEST_CATEGORY = 200  # characters
_LEAVE_OUT = "leave it out with --drop or under drop in graph.yaml"


class Columns:
    """The feature columns of one table, looked at once.

    Attributes:
        further: further texts that mean a missing value, in lower case.
        quick: by column, the values of one that is plain numbers, as float32.
        counts: by column, how often each text occurs in one of the others.
        decimal: the decimal sign of the table.
    """

    def __init__(
        self, table: Cells, numbers: Sequence[int], options: TableOptions, further: Iterable[str], problems: Problems
    ) -> None:
        self._table, self._options, self._problems = table, options, problems
        self.further = frozenset(text.lower() for text in further)
        self.quick: dict[int, np.ndarray] = {}
        self.counts: dict[int, Counter[str]] = {}
        self._means: dict[int, float] = {}
        self._look(numbers)
        self.decimal = options.decimal or self._find_decimal()

    def name(self, at: int) -> str:
        """What a column is called."""
        return self._table.header[at]

    def _look(self, numbers: Sequence[int]) -> None:
        """Read the columns that are plain numbers, and count the texts of the others."""
        as_text = self._options.values
        size = 0
        for at in numbers:
            # A text such as -999 may be a number and yet mean that there is none.
            as_numbers = not self.further and self.name(at) not in as_text
            values = self._table.numbers(at) if as_numbers else None
            if values is None:
                self.counts[at] = Counter(self._table.column(at))
                size += sum(map(len, self.counts[at])) + 100 * len(self.counts[at])
            else:
                self._means[at] = float(values.mean()) if values.size else 0.0
                self.check_sizes(at, values)
                with np.errstate(over="ignore"):
                    self.quick[at] = values.astype(np.float32)
                size += self.quick[at].nbytes
            check_size(self._table.path, size)

    def _find_decimal(self) -> str:
        if not any("," in cell for counts in self.counts.values() for cell in counts):
            return "."
        # Columns of plain numbers have points, if anything.
        points = sum("." in cell for at in self.quick for cell in self._table.column(at)[:1000])
        return find_decimal(self.counts.values(), points)

    def check_sizes(self, at: int, values: np.ndarray) -> None:
        """Make a problem of each number that is too large for a feature."""
        for row in np.flatnonzero(~(np.abs(values) <= LARGEST_FEATURE) & ~np.isnan(values)):
            self._problems.add(
                self._table.path,
                f"a number in the column {quoted(self.name(at))} is beyond {LARGEST_FEATURE:g}, where sums overflow in "
                "single precision; scale the column first",
                int(self._table.rows[row]),
            )

    def describe(self, at: int) -> Column | None:
        """What a column is; None: it has no value at all. A column that cannot be a feature is a problem."""
        name, options = self.name(at), self._options
        always = name in options.indicators
        if at in self.quick:
            return Column(name, "number", self._means[at], always)
        kind = self._kind(at)
        there = self._there(at, kind)
        total = sum(self.counts[at].values())
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
                for cell, count in self.counts[at].items()
                if not is_missing(cell, self.further, kind != "category")
            }
        )

    def _kind(self, at: int) -> Kind:
        name = self.name(at)
        if name in self._options.values:
            return "category"
        there = self._there(at, "number")
        present = sum(there.values())
        if name in self._options.numeric:
            return "number"
        if is_boolean(there):
            return "boolean"
        dates = sum(count for cell, count in there.items() if is_date(cell))
        if present and 2 * dates >= present:
            self._refuse_dates(at, next(cell for cell in there if is_date(cell)))
            return "category"
        numbers = sum(count for cell, count in there.items() if number(cell, self.decimal) is not None)
        return "number" if 2 * numbers >= present else "category"

    def _refuse_dates(self, at: int, example: str) -> None:
        row = self._table.column(at).index(example)
        self.counts[at] = Counter()  # one problem is enough
        self._problems.add(
            self._table.path,
            f"the column {quoted(self.name(at))} has dates, such as {quoted(example)}; make a number of them first, such as "
            f"an age or the days since a first day, or {_LEAVE_OUT}",
            int(self._table.rows[row]),
        )

    def _most_frequent(self, at: int, there: Counter[str]) -> tuple[str, ...]:
        """The categories that get a feature, in the order of names. Texts that are no categories are a problem."""
        cap, name = self._options.cap, self.name(at)
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
