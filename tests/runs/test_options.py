"""The options of a run as people see them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from fedquilt.runs.config import RunConfig
from fedquilt.runs.options import GROUPS, HOW, Option, RunOption, options_of, without_metadata


@pytest.mark.parametrize(
    ("default", "unset", "text"),
    [
        (0.2, "", "0.2"),
        (1e-5, "", "1e-5"),
        (30.0, "", "30"),
        ([0, 1], "", "0,1"),
        (None, "never", "never"),
        (None, "", ""),
        ({}, "", ""),
        ("mean", "", "mean"),
    ],
)
def test_defaults_are_told_in_words(default: Any, unset: str, text: str) -> None:
    option = RunOption("a_name", int, default, Option(HOW, "What it does.", unset=unset))
    assert option.default_text == text
    assert option.help == (f"What it does. Default: {text}." if text else "What it does.")
    assert option.flag == "--a-name"


@pytest.mark.parametrize(
    ("annotation", "plain"),
    [
        (Annotated[int, Field(ge=1)] | None, int | None),
        (list[Annotated[int, Field(ge=1)]], list[int]),
        (Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)], list[int]),
        (dict[str, Any], dict[str, Any]),
        (Literal["a", "b"], Literal["a", "b"]),
    ],
)
def test_a_type_without_its_bounds(annotation: Any, plain: Any) -> None:
    assert without_metadata(annotation) == plain


def test_every_field_of_a_run_is_an_option_with_a_group_and_a_flag_of_its_own() -> None:
    options = options_of(RunConfig)
    assert list(options) == list(RunConfig.model_fields)
    assert {option.about.group for option in options.values()} == set(GROUPS)
    flags = [flag for option in options.values() for flag in (option.flag, option.about.short) if flag]
    assert len(set(flags)) == len(flags)
    assert (options["evaluate_every"].flag, options["settings"].flag) == ("--eval-every", "--set")
    assert options["clients"].type is int
    assert options["clients"].full_type == int | None
