"""All problems of a folder of tables, gathered with their rows and told at once."""

from __future__ import annotations

from pathlib import Path

from fedquilt.common.printable import printable, shortened
from fedquilt.errors import FedquiltError, ProblemsError

MOST_SHOWN = 20  # problems
MOST_ROWS = 5  # of one problem
_MOST_KEPT = 1000  # different problems; a hostile table could have one in every cell


class Problems:
    """What is wrong with the tables of one graph. The same problem in several rows is told once, with the rows."""

    def __init__(self, where: Path) -> None:
        self._where = where
        self._rows: dict[tuple[Path, str], list[int]] = {}
        self._counts: dict[tuple[Path, str], int] = {}
        self._beyond = 0

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, path: Path, text: str, row: int | None = None) -> None:
        """Note a problem of a file, in words that follow "nodes.csv, line 3: ", without a full stop.

        `row` is the line of a csv file or the row of a parquet file; None: a problem of the whole file.
        """
        key = (path, text)
        if key not in self._counts and len(self._counts) >= _MOST_KEPT:
            self._beyond += 1
            return
        self._counts[key] = self._counts.get(key, 0) + 1
        rows = self._rows.setdefault(key, [])
        if row is not None and len(rows) < MOST_ROWS:
            rows.append(row)

    def raise_any(self) -> None:
        """Raise one error about all problems, if there are any."""
        if not self._counts:
            return
        # A file's own problems first, then by row.
        found = sorted(self._counts, key=lambda key: self._rows[key][:1])
        files = sorted({path for path, _ in found}, key=lambda path: [key[0] for key in self._counts].index(path))
        found.sort(key=lambda key: files.index(key[0]))
        if len(found) == 1 and not self._beyond:
            raise FedquiltError(self._sentence(*found[0], whole=True))
        number = sum(self._counts.values()) + self._beyond
        lines = [f"  {self._sentence(*key)}" for key in found[:MOST_SHOWN]]
        left = number - sum(self._counts[key] for key in found[:MOST_SHOWN])
        if left:
            lines.append(f"  and {left:,} more.")
        raise ProblemsError(f"{self._where} has {number:,} problems; correct them and try again:", lines)

    def _sentence(self, path: Path, text: str, whole: bool = False) -> str:
        rows, count = self._rows[path, text], self._counts[path, text]
        unit = "row" if path.suffix == ".parquet" else "line"
        where = ""
        if rows:
            more = f" and {count - len(rows):,} more" if count > len(rows) else ""
            listed = ", ".join(map(str, rows)) if more or count == 1 else _and(rows)
            where = f", {unit}{'s' if count > 1 else ''} {listed}{more}"
        return f"{path if whole else path.name}{where}: {text}."


def quoted(text: str) -> str:
    """A cell or a column's name as a problem quotes it: short, and safe to print."""
    return f"'{printable(shortened(text, 60))}'"


def listed(names: list[str], most: int = 6) -> str:
    """Names in a row, the first of many."""
    shown = ", ".join(printable(shortened(name, 60)) for name in names[:most])
    return f"{shown}, ..." if len(names) > most else shown or "nothing"


def _and(rows: list[int]) -> str:
    return f"{', '.join(map(str, rows[:-1]))} and {rows[-1]}"
