"""What the cells of a column are: numbers, yes and no, dates, categories, or missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

# Texts that stand for a missing value in any column, and those that do in a column of numbers only, in lower case.
MISSING = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null", "?"})
MISSING_NUMBER = MISSING | {"none", "nil", "-", "--", ".", "#value!", "#div/0!", "#ref!", "missing"}
BOOLEANS = {"yes": 1.0, "true": 1.0, "y": 1.0, "t": 1.0, "no": 0.0, "false": 0.0, "n": 0.0, "f": 0.0}

_DIGITS = r"[+-]?(?:\d+{0}?\d*|{0}\d+)(?:[eE][+-]?\d+)?"
_PLAIN = re.compile(_DIGITS.format(r"\."), re.ASCII)
_COMMA = re.compile(_DIGITS.format(","), re.ASCII)
_GROUPED = {  # thousands, by the decimal sign: 1,234.5 and 1.234,5; in both 1 234 and 1'234
    ".": re.compile(r"[+-]?\d{1,3}(?:[,' ]\d{3})+(?:\.\d*)?", re.ASCII),
    ",": re.compile(r"[+-]?\d{1,3}(?:[.' ]\d{3})+(?:,\d*)?", re.ASCII),
}
_ONE_SIGN = {sign: re.compile(rf"[+-]?\d*{sign}\d+", re.ASCII) for sign in (",", r"\.")}
_THREE = {sign: re.compile(rf"[+-]?\d{{1,3}}(?:{sign}\d{{3}})+", re.ASCII) for sign in (",", r"\.")}
_DATE = re.compile(
    r"(?:\d{4}[-/.]\d{1,2}(?:[-/.]\d{1,2})?|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})"
    r"|\d{1,2}[- ](?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[- ,]+\d{2,4})(?:[ T]\d{1,2}:\d{2}.*)?"
    r"|\d{1,2}:\d{2}(?::\d{2})?",
    re.ASCII | re.IGNORECASE,
)


def quick_numbers(cells: list[str]) -> np.ndarray | None:
    """[N] float64 where every cell is a plain finite number, such as -1.5e3; else None."""
    try:
        values = np.array([float(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        return None
    # Python also takes 1_000, digits of other scripts, nan and inf.
    return values if np.isfinite(values).all() and (text := "".join(cells)).isascii() and "_" not in text else None


def number(cell: str, decimal: str) -> float | None:
    """The number that a cell is, written with this decimal sign; None where it is none."""
    # Spreadsheets write a minus and narrow spaces of their own.
    text = cell.replace("\u2212", "-").replace("\u00a0", " ").replace("\u202f", " ").replace("\u2019", "'")
    if len(text) > 400:
        return None
    if (_PLAIN if decimal == "." else _COMMA).fullmatch(text):
        value = float(text.replace(decimal, "."))
    elif _GROUPED[decimal].fullmatch(text):
        value = float(re.sub(r"[,' ]" if decimal == "." else r"[.' ]", "", text).replace(decimal, "."))
    else:
        return None
    return value if np.isfinite(value) else None


def find_decimal(columns: Iterable[Mapping[str, int]], points: int) -> str:
    """The decimal sign of a table, given the counts of cells in its columns that are not plain numbers throughout.

    3,5 and 3.25 are clear; 1,234 may be a thousand or a little more than one, and counts only where nothing is clear.
    `points` is how many cells of the other columns have a decimal point.
    """
    clear = {",": 0, ".": points}
    open_ = {",": 0, ".": 0}
    for counts in columns:
        for cell, count in counts.items():
            for sign, one in ((",", ","), (".", r"\.")):
                if _ONE_SIGN[one].fullmatch(cell):
                    (open_ if _THREE[one].fullmatch(cell) else clear)[sign] += count
    if clear[","] or clear["."]:
        return "," if clear[","] > clear["."] else "."
    return "," if open_[","] > 0 and not open_["."] else "."


def is_missing(cell: str, further: frozenset[str], numbers: bool) -> bool:
    """Whether a cell means that there is no value; `further`: texts that mean it in this table, in lower case."""
    text = cell.lower()
    return text in (MISSING_NUMBER if numbers else MISSING) or text in further


def boolean(cell: str) -> float | None:
    """1 for yes, 0 for no, None for anything else."""
    return BOOLEANS.get(cell.lower(), {"1": 1.0, "0": 0.0}.get(cell))


def is_boolean(counts: Mapping[str, int]) -> bool:
    """Whether cells (without missing ones) are all yes or no, in words."""
    return all(boolean(cell) is not None for cell in counts) and any(cell.lower() in BOOLEANS for cell in counts)


def is_date(cell: str) -> bool:
    """Whether a cell is a date or a time of day."""
    return _DATE.fullmatch(cell) is not None
