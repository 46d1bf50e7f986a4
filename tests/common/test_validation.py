"""The first problem of a pydantic error, in words."""

from __future__ import annotations

import math
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedquilt.common.validation import Problem, fault_of_value, first_problem


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


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else 1


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("plain", None),
        ({"lr": 0.1, "sizes": [1, 2], "on": True, "none": None}, None),
        (2**64 - 1, None),
        (2**64, "more than 64 bits"),
        ([10**5000], "more than 64 bits"),
        (-(2**63) - 1, "more than 64 bits"),
        (math.inf, "not a finite number"),
        ([1.0, {"a": math.nan}], "not a finite number"),
        ("a\0", "NUL"),
        ({"\ud800": 1}, "not text"),
        ("x" * 5000, "5,000 characters"),
        (b"x", "reads it as a bytes"),
        (date(2020, 1, 2), "reads it as a date"),
        (nested(8), None),
        (nested(9), "nested too deep"),
    ],
)
def test_values_that_no_option_has(value: Any, fault: str | None) -> None:
    found = fault_of_value(value)
    assert found is None if fault is None else fault in (found or "")
