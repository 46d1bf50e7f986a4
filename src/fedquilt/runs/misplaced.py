"""A method's setting given as an option of the run, or the other way round: the error says where it belongs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import BaseModel

from fedquilt.common.printable import shown
from fedquilt.errors import FedquiltError, unknown
from fedquilt.runs.options import options_of


def check_option_names(values: Mapping[str, Any], schema: type[BaseModel]) -> None:
    """Refuse a name that is no option of a run; where it is a setting of a method, the error shows how to give it."""
    for name, value in values.items():
        if name not in schema.model_fields:
            raise setting_as_option(name, value, str(values.get("method", ""))) or unknown(
                "option", name, schema.model_fields
            )


def setting_as_option(name: str, value: Any = None, method: str = "") -> FedquiltError | None:
    """The error for a setting that was given as an option; None where no method has such a setting."""
    owners = _owners(name)
    if not owners:
        return None
    whose = f"the method {method}" if method in owners else _listed(owners)
    given = "..." if value is None else shown(value)
    return FedquiltError(
        f"'{name}' is a setting of {whose}, not an option of the run; give it as settings={{'{name}': {given}}} in Python, "
        f"--set {name}={given} on the command line, or under 'settings:' in a config file."
    )


def check_setting_names(settings: Any, schema: type[BaseModel]) -> None:
    """Refuse an option of the run that was given as a setting, where no method has a setting of that name."""
    if not isinstance(settings, Mapping):
        return
    for name, value in settings.items():
        if name in schema.model_fields and not _owners(str(name)):
            given = shown(value)
            raise FedquiltError(
                f"'{name}' is an option of the run, not a setting of a method; give it as {name}={given} in Python, "
                f"{options_of(schema)[name].flag} {given} on the command line, or beside 'settings:' in a config file."
            )


def _owners(setting: str) -> set[str]:
    """The methods that have a setting."""
    from fedquilt.methods.base import methods  # imports torch, which a right name does not need

    return {name for name, method in methods().items() if setting in {field.name for field in fields(method.Settings)}}


def _listed(owners: set[str]) -> str:
    names = sorted(owners)
    return f"the method {names[0]}" if len(names) == 1 else f"methods ({', '.join(names)})"
