"""The first problem of a pydantic error, in words."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedquilt.common.validation import Problem, first_problem


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    clip: Annotated[float, Field(gt=0)]


class Outer(BaseModel):
    name: str = ""
    inner: Inner | None = None

    @field_validator("name")
    @classmethod
    def _no_spaces(cls, name: str) -> str:
        if " " in name:
            raise ValueError("A name has no spaces")
        return name


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"inner": {"clip": 0}}, Problem(("inner", "clip"), "Input should be greater than 0", "greater_than")),
        ({"inner": {}}, Problem(("inner", "clip"), "Field required", "missing")),
        ({"name": "a b", "inner": {}}, Problem(("name",), "A name has no spaces", "value_error")),
    ],
)
def test_the_first_problem(values: dict[str, Any], problem: Problem) -> None:
    with pytest.raises(ValidationError) as caught:
        Outer(**values)
    assert first_problem(caught.value) == problem


def test_the_sentence_names_the_field() -> None:
    problem = Problem(("dp", "clip"), "Field required", "missing")
    assert (
        problem.sentence(f"In site.yaml, {problem.field}") == "In site.yaml, dp.clip is not possible: field required."
    )
