"""`Encoding`: how the columns of a table became features, so that another table is made to the same features."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from fedquilt.common.json_text import parse_json
from fedquilt.common.printable import fault_of_name
from fedquilt.errors import FedquiltError
from fedquilt.graphs.validate import MOST_FEATURES

Kind = Literal["number", "boolean", "category"]
OTHER, MISSING = "other", "missing"


@dataclass(frozen=True)
class Column:
    """How one column of a table becomes features.

    Attributes:
        name: the column's name.
        kind: "number": the number; "boolean": 1 for yes and 0 for no; "category": a feature for each category, 1 where the
            cell is that category.
        fill: what a missing number or boolean becomes: the mean of the column that was there.
        indicator: whether a further feature `name:missing` is 1 where the cell is missing.
        categories: the categories, in the order of their features `name=category`.
        other: whether a further feature `name=other` is 1 for every category that is not listed.
    """

    name: str
    kind: Kind = "number"
    fill: float = 0.0
    indicator: bool = False
    categories: tuple[str, ...] = ()
    other: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, in their order."""
        names = [f"{self.name}={one}" for one in self.categories] if self.kind == "category" else [self.name]
        names += [f"{self.name}={OTHER}"] if self.other else []
        return (*names, f"{self.name}:{MISSING}") if self.indicator else tuple(names)

    def encode_numbers(self, values: np.ndarray, x: np.ndarray) -> None:
        """Write the features of [N] numbers, NaN where missing, into x, [N, width]."""
        gone = np.isnan(values)
        x[:, 0] = np.where(gone, self.fill, values)
        if self.indicator:
            x[:, -1] = gone

    def encode_categories(self, cells: Sequence[str | None], x: np.ndarray) -> int:
        """Write the features of [N] categories, None where missing, into x, [N, width] zeros.

        An unknown category is "other"; where there is no such feature, it is none of the known ones. Returns how many are
        unknown.
        """
        place = {name: number for number, name in enumerate(self.categories)}
        places = np.array([-1 if cell is None else place.get(cell, -2) for cell in cells], dtype=np.int64)
        known = np.flatnonzero(places >= 0)
        x[known, places[known]] = 1
        if self.other:
            x[places == -2, len(self.categories)] = 1
        if self.indicator:
            x[places == -1, -1] = 1
        return int((places == -2).sum())


@dataclass(frozen=True)
class Encoding:
    """How a table of nodes became a graph.

    Attributes:
        columns: the columns that became features, in the order of their features.
        id, label, split, client: the names of these columns in the table; None where it had none.
        dropped: the columns that were left out.
        missing: the texts that mean a missing value, beside those that always do.
    """

    columns: tuple[Column, ...]
    id: str = "id"
    label: str | None = "label"
    split: str | None = None
    client: str | None = None
    dropped: tuple[str, ...] = field(default=())
    missing: tuple[str, ...] = field(default=())

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the F features, in their order."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def widths(self) -> list[int]:
        """How many features each column gives."""
        return [len(column.feature_names) for column in self.columns]

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types; `from_dict` reads it."""
        return json.loads(self.to_json())

    def to_json(self) -> str:
        """As text; `from_json` reads it."""
        return json.dumps({"format": 1, **asdict(self)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str, where: str) -> Encoding:
        """Read what `to_json` wrote; an error names the file, `where`."""
        try:
            return cls.from_dict(parse_json(text), where)
        except ValueError:
            raise _damaged(where) from None

    @classmethod
    def from_dict(cls, value: Any, where: str) -> Encoding:
        """Read what `to_dict` gave. It may come from a file of others: all of it is checked."""
        if not isinstance(value, dict) or value.get("format") != 1:
            raise _damaged(where)
        fields = {key: part for key, part in value.items() if key != "format"}
        try:
            columns = tuple(_column(one) for one in fields.pop("columns"))
            dropped, missing = (tuple(fields.pop(key)) for key in ("dropped", "missing"))
            found = cls(columns=columns, dropped=dropped, missing=missing, **fields)
        except (TypeError, ValueError, KeyError):
            raise _damaged(where) from None
        texts = (found.id, found.label, found.split, found.client)
        if not all(part is None or _is_name(part) for part in (*texts, *found.dropped, *found.missing)):
            raise _damaged(where)
        if found.id is None or sum(found.widths) > MOST_FEATURES:
            raise _damaged(where)
        return found


def _column(value: Any) -> Column:
    column = Column(**{**value, "categories": tuple(value["categories"])})
    right = (
        _is_name(column.name)
        and column.kind in get_args(Kind)
        and type(column.fill) in (int, float)
        and math.isfinite(column.fill)
        and type(column.indicator) is bool
        and type(column.other) is bool
        and all(_is_name(name) for name in column.categories)
        and len(set(column.categories)) == len(column.categories)
        and (column.kind == "category" or not (column.categories or column.other))
    )
    if not right:
        raise ValueError
    return column


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and fault_of_name(value) is None


def _damaged(where: str) -> FedquiltError:
    return FedquiltError(
        f"{where} has a damaged description of how its columns became features ('encoding'); write it again."
    )
