"""The typed keyword arguments of `fedquilt.run` are the fields of `RunConfig`."""

from __future__ import annotations

from typing import get_type_hints

from fedquilt.runs.config import RunConfig
from fedquilt.runs.options import options_of
from fedquilt.runs.run_options import RunOptions


def test_the_keys_and_types_are_those_of_the_schema() -> None:
    expected = {name: option.full_type for name, option in options_of(RunConfig).items()}
    assert get_type_hints(RunOptions) | {"method": str, "dataset": str} == expected
    assert RunOptions.__optional_keys__ == frozenset(get_type_hints(RunOptions))
