"""Type annotations and numbers in words."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import Field

from fedquilt.common.type_words import short_number, type_in_words


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (int, "whole number"),
        (bool, "true | false"),
        (Literal["a", "b"], "a | b"),
        (Annotated[float, Field(ge=0, lt=1)], "number ≥ 0, < 1"),
        (Annotated[int, Field(ge=1)] | None, "whole number ≥ 1 | none"),
        (list[Annotated[int, Field(ge=1)]], "list of whole numbers ≥ 1"),
        (dict[str, int], "names and values"),
    ],
)
def test_types_are_told_in_words(kind: object, words: str) -> None:
    assert type_in_words(kind) == words


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (0.2, "0.2"), (1e-5, "1e-5"), (1e9, "1e9"), (1e-100, "1e-100"), (30, "30")]
)
def test_numbers_are_written_as_people_write_them(value: float, text: str) -> None:
    assert short_number(value) == text
