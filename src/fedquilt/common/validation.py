"""The first thing that pydantic found wrong, in a sentence for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, time
from typing import Any

from pydantic import ValidationError

from fedquilt.common.printable import fault_of_name

LONGEST = 4096  # characters
DEEPEST = 8  # levels


@dataclass(frozen=True)
class Problem:
    """One problem with a value.

    Attributes:
        path: the keys and indices that lead to it; empty for a problem with the whole.
        text: what is wrong, without a full stop.
        kind: pydantic's name for it, such as extra_forbidden.
    """

    path: tuple[str | int, ...]
    text: str
    kind: str

    @property
    def field(self) -> str:
        """The path with dots."""
        return ".".join(str(part) for part in self.path)

    @property
    def message(self) -> str:
        """The text, beginning with a small letter."""
        return self.text[0].lower() + self.text[1:]

    def sentence(self, subject: str) -> str:
        """`<subject> is not possible: <message>.`, where the subject names the field, such as "The option rounds=0"."""
        return f"{subject} is not possible: {self.message}."


def fault_of_value(value: Any) -> str | None:
    """What makes a plain value of an option unusable, whatever the option; None where nothing does.

    Text may have no NUL and no lone surrogates and is not longer than a path may be; whole numbers have 64 bits at most, and
    other numbers are finite. Lists and mappings are looked into, to a depth that no option has.
    """
    return _fault(value, DEEPEST)


def _fault(value: Any, levels: int) -> str | None:
    if isinstance(value, str):
        if len(value) > LONGEST:
            return f"it has {len(value):,} characters, more than the {LONGEST:,} of the longest path"
        fault = fault_of_name(value)
        return f"it has {fault}" if fault else None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**64 else "it has more than 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else "it is not a finite number"
    if isinstance(value, Mapping | list | tuple):
        if not levels:
            return "it is nested too deep"
        items = [*value, *value.values()] if isinstance(value, Mapping) else value
        return next((fault for item in items if (fault := _fault(item, levels - 1))), None)
    if isinstance(value, date | time | bytes | set | complex):
        return f"YAML reads it as a {type(value).__name__}, which no option is; put text in quotes"
    return None


def first_problem(error: ValidationError) -> Problem:
    """The first problem of a validation error."""
    first: Any = error.errors()[0]
    return Problem(tuple(first["loc"]), first["msg"].removeprefix("Value error, "), first["type"])
