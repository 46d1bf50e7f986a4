"""The options of `fedquilt graph check` and `fedquilt graph import` that say how tables are read: the keys of graph.yaml."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

TABLE_OPTIONS = "options"  # the parameter of a command that gets them
PANEL = "Tables"
_LISTS = ("drop", "categories", "numeric", "missing", "indicators")
_HELP = {
    "id": "The column of the nodes' names. [dim]\\[default: id][/]",
    "label": "The column of the classes or numbers to learn. [dim]\\[default: label][/]",
    "label_type": "What labels are: class or number. [dim]\\[default: found out][/]",
    "split": "The column of train, val and test. [dim]\\[default: split][/]",
    "client": "The column of the clients. [dim]\\[default: client][/]",
    "source": "The edges' first column. [dim]\\[default: source][/]",
    "target": "The edges' second column. [dim]\\[default: target][/]",
    "weight": "The edges' column of weights. [dim]\\[default: weight][/]",
    "drop": "Columns to leave out, such as name,admitted.",
    "categories": "Columns that are categories, also where they look like numbers.",
    "numeric": "Columns that have to be numbers.",
    "missing": "Further texts that mean a missing value, such as -999,unknown.",
    "indicators": "Columns that always get a feature 'is missing'.",
    "cap": "How many categories of a column get a feature; the others are 'other'. [dim]\\[default: 20][/]",
    "separator": "Between columns: , ; tab or |. [dim]\\[default: found out][/]",
    "decimal": "The decimal sign: . or , [dim]\\[default: found out][/]",
    "encoding": "utf-8, utf-16, latin-1 or cp1252. [dim]\\[default: found out][/]",
}


def takes_table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of tables: its parameter `options` gets a dict of those that were given."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name != TABLE_OPTIONS:
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        for key, text in _HELP.items():
            kind = int | None if key == "cap" else str | None
            option = typer.Option(f"--{key.replace('_', '-')}", help=text, rich_help_panel=PANEL, metavar=_metavar(key))
            parameters.append(
                inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])
            )

    @functools.wraps(command)
    def with_options(**values: Any) -> None:
        given = {key: value for key in _HELP if (value := values.pop(key)) is not None}
        for key in _LISTS:
            if key in given:
                given[key] = [part.strip() for part in given[key].split(",") if part.strip()]
        command(**values, **{TABLE_OPTIONS: given})

    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def _metavar(key: str) -> str:
    if key in _LISTS:
        return "A,B,..." if key == "missing" else "COLUMN,..."
    return {"cap": "N", "separator": "SIGN", "decimal": "SIGN", "encoding": "NAME", "label_type": "TYPE"}.get(
        key, "COLUMN"
    )
