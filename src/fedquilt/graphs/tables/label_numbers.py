"""The column of labels of a table where they are numbers to learn, such as a price, and not classes."""

from __future__ import annotations

import re

import numpy as np

from fedquilt.graphs.tables.cells import Cells
from fedquilt.graphs.tables.options import TableOptions
from fedquilt.graphs.tables.problems import Problems, quoted
from fedquilt.graphs.tables.values import MISSING, MISSING_NUMBER, number
from fedquilt.graphs.validate import LARGEST_FEATURE, MOST_CLASSES

WHOLE = re.compile(r"[+-]?\d+(\.0*)?", re.ASCII)
_OTHER_SIGN = {".": ",", ",": "."}


def read_label_numbers(
    table: Cells,
    labels: list[str],
    further: frozenset[str],
    options: TableOptions,
    decimal: str,
    labelled: bool,
    problems: Problems,
) -> np.ndarray | None:
    """[N] float64, NaN where there is no label; None where labels are classes.

    Unless the user says that they are numbers, they are where every label is one and some cannot be a class: a fraction, below
    -1 or too large.

    Args:
        table: for the rows that problems name.
        labels: [N] texts.
        further: texts that mean a missing value in this table, in lower case.
        options: how the table is read; `label_type` is None or "number".
        decimal: the decimal sign of the features; labels may have the other one, where the user does not say.
        labelled: whether labels are needed; otherwise one that is no number is missing.
        problems: gets the labels that are no numbers.
    """
    said = options.label_type == "number"
    missing = (MISSING_NUMBER if said else MISSING) | further
    present = {label for label in labels if label.lower() not in missing}
    if not said and all(_is_class(label) for label in present):
        return None
    signs = [options.decimal] if options.decimal else [decimal, _OTHER_SIGN[decimal]]
    read = [{label: number(label, sign) for label in present} for sign in signs]
    best = min(read, key=lambda values: sum(value is None for value in values.values()))
    strange = {label for label, value in best.items() if value is None}
    if strange and not said:
        return None
    if labelled:
        for row, label in zip(table.rows.tolist(), labels, strict=True):
            if label in strange:
                problems.add(table.path, f"the label {quoted(label)} is no number; correct it, or leave it empty", row)
            elif abs(best.get(label) or 0.0) > LARGEST_FEATURE:
                problems.add(
                    table.path, f"the label {quoted(label)} is beyond {LARGEST_FEATURE:g}; use other units", row
                )
    found = [best.get(label) for label in labels]
    return np.array([np.nan if value is None else value for value in found], dtype=np.float64)


def _is_class(label: str) -> bool:
    """Whether a label can be the number of a class, or -1, which means none."""
    return WHOLE.fullmatch(label) is not None and len(label) < 19 and -1 <= float(label) < MOST_CLASSES
