"""The settings of a task: a frozen dataclass with types and bounds, read from a user's names and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedquilt.common.printable import shown
from fedquilt.common.validation import fault_of_value, first_problem
from fedquilt.errors import FedquiltError, unknown


@dataclass(frozen=True)
class NoTaskSettings:
    """A task with nothing to set."""


def read_task_settings(task: str, kind: type, given: Mapping[str, Any]) -> Any:
    """Settings of the class `kind`: its defaults, and what the user gave; the first wrong one is an error of one sentence."""
    names = {field.name for field in fields(kind)}
    for name, value in given.items():
        if name not in names:
            if not names:
                raise FedquiltError(f"The task {task} has no settings, so '{name}' cannot be set; leave it out.")
            raise unknown(f"setting of the task {task}", str(name), names)
        if fault := fault_of_value(value):
            raise FedquiltError(f"The setting {name}={shown(value)} of the task {task} is not possible: {fault}.")
    try:
        return _reader(kind).validate_python(dict(given))
    except ValidationError as error:
        problem = first_problem(error)
        setting = f"The setting {problem.field}={shown(given.get(problem.field))}"
        raise FedquiltError(problem.sentence(f"{setting} of the task {task}")) from None


@lru_cache(maxsize=64)
def _reader(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
