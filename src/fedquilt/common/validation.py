"""The first thing that pydantic found wrong, in a sentence for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError


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


def first_problem(error: ValidationError) -> Problem:
    """The first problem of a validation error."""
    first: Any = error.errors()[0]
    return Problem(tuple(first["loc"]), first["msg"].removeprefix("Value error, "), first["type"])
