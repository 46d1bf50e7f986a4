"""The files and texts made from `RunConfig`: docs/options.md, the typed keyword arguments, and the signature of `fedquilt.run`.

`python -m fedquilt.runs.option_files`, in the repository, writes the two files anew (`make options`).
"""

from __future__ import annotations

import inspect
import re
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

from fedquilt.common.files import write_text
from fedquilt.common.type_words import type_in_words
from fedquilt.runs.config import RunConfig
from fedquilt.runs.options import GROUPS, RunOption, options_of

PAGE = "docs/options.md"
TYPED = "src/fedquilt/runs/run_options.py"
# `fedquilt.run` has parameters of its own for these.
POSITIONAL = ("method", "dataset")

F = TypeVar("F", bound=Callable[..., Any])

_PAGE_HEAD = """# The options of a run

`fedquilt run`, `fedquilt compare` and `fedquilt tune` have these options, a config file (`--config`) these keys, and
`fedquilt.run` and `fedquilt.compare` these keyword arguments. This page is made from `RunConfig`
(`src/fedquilt/runs/config.py`) by `make options`; change it there.
"""

_TYPED_HEAD = '''"""The keyword arguments of `fedquilt.run`, for type checkers. Made from `RunConfig` by `make options`."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class RunOptions(TypedDict, total=False):
    """The options of a run, without the method and the dataset; `RunConfig` has their bounds; see `fedquilt docs options`."""
'''


def options_page(schema: type[BaseModel] = RunConfig) -> str:
    """docs/options.md: a table for each group of options."""
    options = list(options_of(schema).values())
    parts = [_PAGE_HEAD]
    for group in GROUPS:
        rows = ["| Key | Flag | Type | Default | Meaning |", "|---|---|---|---|---|"]
        rows += [_row(option) for option in options if option.about.group == group]
        parts.append("\n".join([f"## {group}", "", *rows]) + "\n")
    return "\n".join(parts)


def _row(option: RunOption) -> str:
    flag = f"`{option.flag}`" + (f", `{option.about.short}`" if option.about.short else "")
    kind = type_in_words(option.annotation).replace(" | none", "").replace("|", "or")
    return f"| `{option.name}` | {flag} | {kind} | {option.default_text} | {option.about.help} |"


def typed_source(schema: type[BaseModel] = RunConfig) -> str:
    """The source of `fedquilt.runs.run_options`."""
    fields = [
        f"    {_declaration(name, option.full_type)}\n{_docstring(option.help)}\n"
        for name, option in options_of(schema).items()
        if name not in POSITIONAL
    ]
    return "\n".join([_TYPED_HEAD, *fields])


def _declaration(name: str, annotation: Any) -> str:
    """A field and its type; an optional literal that is too long for a line has a line for each value, as in formatted code."""
    line = f"{name}: {_source_of(annotation)}"
    if len(line) <= 116:
        return line
    literal = next(part for part in get_args(annotation) if get_origin(part) is Literal)
    values = "\n".join(f"            {_quoted(value)}," for value in get_args(literal))
    return f"{name}: (\n        Literal[\n{values}\n        ]\n        | None\n    )"


def _docstring(text: str) -> str:
    quoted = f'"""{text}"""'
    if len(quoted) > 110:
        quoted = '"""' + "\n".join(textwrap.wrap(text, 110)) + '\n"""'
    return textwrap.indent(quoted, "    ")


def _source_of(annotation: Any) -> str:
    """A type as Python source."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return f"Literal[{', '.join(_quoted(value) for value in arguments)}]"
    if origin in (Union, types.UnionType):
        return " | ".join(_source_of(part) for part in arguments)
    if origin in (list, dict):
        return f"{origin.__name__}[{', '.join(_source_of(part) for part in arguments)}]"
    return {type(None): "None", Any: "Any"}.get(annotation) or annotation.__name__


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def with_option_signature(function: F, schema: type[BaseModel] = RunConfig) -> F:
    """Show the options of a run in the signature and the docstring of a function that takes them as `**options`."""
    signature = inspect.signature(function)
    parameters = dict(signature.parameters)
    variable = next(name for name, p in parameters.items() if p.kind is p.VAR_KEYWORD)
    del parameters[variable]
    options = {name: option for name, option in options_of(schema).items() if name not in (*POSITIONAL, *parameters)}
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    shown = [
        *parameters.values(),
        *(
            inspect.Parameter(name, keyword_only, default=option.default, annotation=_source_of(option.full_type))
            for name, option in options.items()
        ),
    ]
    function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    wrapped = textwrap.TextWrapper(
        width=120, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False
    )
    lines = "\n".join(wrapped.fill(f"{name}: {option.help}") for name, option in options.items())
    function.__doc__ = re.sub(
        rf" *\*\*{variable}:.*\Z", lines, inspect.cleandoc(function.__doc__ or ""), flags=re.DOTALL
    )
    return function


if __name__ == "__main__":
    write_text(Path(PAGE), options_page())
    write_text(Path(TYPED), typed_source())
