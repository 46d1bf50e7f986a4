"""The options of a run, as people see them: what `--help`, `help(fedquilt.run)` and the page of options say of each field.

`RunConfig` declares each option once: its field has the type, the bounds and the default, and an `Option` with the rest.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from fedquilt.common.type_words import short_number

WHAT, HOW, WHERE, OUTPUT = "What to train on", "How to train", "Where", "Output"
GROUPS = (WHAT, HOW, WHERE, OUTPUT)


@dataclass(frozen=True)
class Option:
    """What a field's type and default do not say about an option.

    Attributes:
        group: the heading under which it is listed, one of `GROUPS`.
        help: one sentence or two, without the default. What stands in backticks is code.
        short: the short flag, such as -m.
        flag: the flag on the command line, where that is not the field's name.
        metavar: what `--help` shows for the value, where that is not the type.
        unset: what happens by default, where the default is None.
        kind: the type on the command line, where that is not the field's.
    """

    group: str
    help: str
    short: str = ""
    flag: str = ""
    metavar: str = ""
    unset: str = ""
    kind: type | None = None


@dataclass(frozen=True)
class RunOption:
    """One field of `RunConfig` with its `Option`.

    Attributes:
        name: the field's name, which is also its key in a config file.
        annotation: its type with bounds.
        default: its default value.
        about: its `Option`.
    """

    name: str
    annotation: Any
    default: Any
    about: Option

    @property
    def flag(self) -> str:
        """The flag on the command line, such as --min-train."""
        return self.about.flag or "--" + self.name.replace("_", "-")

    @property
    def type(self) -> Any:
        """The type of a value that is given: the field's, without bounds and without None."""
        whole = self.full_type
        parts = [part for part in get_args(whole) if part is not type(None)]
        return parts[0] if get_origin(whole) is Union and len(parts) == 1 else whole

    @property
    def full_type(self) -> Any:
        """The field's type without bounds; it includes None where the field may be None."""
        return without_metadata(self.annotation)

    @property
    def help(self) -> str:
        """The help text with the default at its end."""
        default = self.default_text
        return f"{self.about.help} Default: {default}." if default else self.about.help

    @property
    def default_text(self) -> str:
        """The default in words; "" where there is none to speak of."""
        if self.default is None or self.default in ({}, []):
            return self.about.unset
        if isinstance(self.default, list):
            return ",".join(map(str, self.default))
        if isinstance(self.default, float):
            return short_number(self.default)
        return str(self.default)


@cache
def options_of(schema: type[BaseModel]) -> Mapping[str, RunOption]:
    """The options that a schema declares, by name, in its order. A field without an `Option` is an error in the code.

    They are found once: it takes ten milliseconds, and a study has a configuration for each of its thousands of cells.
    """
    hints = get_type_hints(schema, include_extras=True)
    out = {}
    for name, field in schema.model_fields.items():
        about = next((item for item in field.metadata if isinstance(item, Option)), None)
        if about is None:
            raise TypeError(f"{schema.__name__}.{name} has no Option; say in it how people see the field")
        out[name] = RunOption(name, hints[name], field.get_default(), about)
    return out


def without_metadata(annotation: Any) -> Any:
    """A type without what `Annotated` adds to it and to its parts: `list[Annotated[int, ...]]` is `list[int]`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return without_metadata(arguments[0])
    if origin in (Union, types.UnionType):
        return Union[tuple(without_metadata(part) for part in arguments)]  # noqa: UP007
    if origin in (list, dict):
        return origin[tuple(without_metadata(part) for part in arguments)]
    return annotation
