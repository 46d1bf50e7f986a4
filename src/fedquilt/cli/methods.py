"""`fedquilt methods`: the methods, their settings, and what each of their messages reveals."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import results, say
from fedquilt.common.registry import load_plugins, plugin_entries
from fedquilt.common.type_words import type_in_words

if TYPE_CHECKING:
    from fedquilt.messages.message import TensorSpec
    from fedquilt.methods.base import Method

POOLED = (
    "It is no federation: features, labels and edges of all clients are in one place, so it runs in simulations only, where "
    "you hold the whole graph."
)


def methods(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One method, in detail.")] = None,
    plugin: o.Plugin = None,
) -> None:
    """List the methods, or say of one what can be set and what it sends."""
    from rich.table import Table

    from fedquilt.methods.base import METHODS, find_method
    from fedquilt.methods.base import methods as known

    load_plugins(plugin or (), named=True)
    if name is not None:
        _print_method(find_method(name))
        return
    table = Table()
    added = plugin_entries()
    for heading in ("Name", "Method", "Paper", "A client uploads", *(["From"] if added else [])):
        table.add_column(heading)
    for key, method in known().items():
        uploads = ", ".join(short(spec.name) for spec in method.uploads)
        if method.pools_graphs:
            uploads = "its whole graph"
        origin = [METHODS.origin(key)] if added else []
        table.add_row(key, method.title, method.paper, uploads or "nothing", *origin)
    results().print(table)
    for source, entries in added.items():
        say(f"{source} registers: {', '.join(entries)}.")
    say("More about one of them: 'fedquilt methods NAME'.")


def short(name: str) -> str:
    """Return a message's name as a permit of a site has it: `model.*` becomes `model`, `model.conv*` stays."""
    return name.removesuffix(".*")


def meanings(settings: type) -> dict[str, str]:
    """Return the meaning of each field of a settings class, from the `Attributes:` of its docstring and its bases'."""
    found: dict[str, str] = {}
    for cls in reversed(settings.__mro__):
        section = re.search(r"^Attributes:\n((?:[ ]{4}.*\n?|\n)+)", inspect.cleandoc(cls.__doc__ or ""), re.MULTILINE)
        if section is None:
            continue
        for entry in re.split(r"\n(?=[ ]{4}\S)", section[1].rstrip()):
            name, _, meaning = " ".join(entry.split()).partition(": ")
            found |= dict.fromkeys(name.split(", "), meaning.rstrip("."))
    return found


def _print_method(method: type[Method]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = results()
    console.print(Text(method.title, "bold"), f"({method.paper})")
    for paragraph in _idea(method):
        console.print(paragraph, markup=False)
    console.print()
    console.print(f"Against hostile clients: {against_hostile_clients(method)}", markup=False)
    console.print(f"Weights of edges: {edge_weights(method)}", markup=False)
    console.print(f"Clients that come after training: {newcomers(method)}", markup=False)
    if method.uses_validation:
        console.print(f"Labels of validation nodes: {method.uses_validation}", markup=False)
    console.print()
    listed = fields(method.Settings)
    if not listed:
        say("It has nothing to set.")
    else:
        hints = get_type_hints(method.Settings, include_extras=True)
        meaning, varies = meanings(method.Settings), _varying(method)
        table = Table(title="Settings, with --set NAME=VALUE", title_justify="left", title_style="bold")
        for heading in ("Name", "Type", "Default", "Meaning"):
            table.add_column(heading)
        for field in listed:
            default = "" if field.default is MISSING else _value(field.default)
            starred = default + (" *" if field.name in varies else "")
            table.add_row(field.name, type_in_words(hints[field.name]), starred, meaning.get(field.name, ""))
        console.print(table)
        if varies:
            say("* follows the dataset or the partition unless you set it.")
    console.print()
    if method.pools_graphs:
        say(POOLED)
        return
    _print_messages("A client uploads", method.uploads)
    console.print()
    _print_messages("A client downloads", method.downloads)
    if method.uploads:
        console.print()
        say(f"Secure aggregation: {_secure(method)}")


def against_hostile_clients(method: type[Method]) -> str:
    """Return a sentence about the aggregation rules that the method's server can use."""
    from fedquilt.methods.base import Method as Base

    if method.guarded:
        return method.guarded
    if method.pools_graphs:
        return "There is no rule: a wrong label in the joined graph counts as any other."
    if method.averages is Base.averages:
        return "Nothing is taken from others." if not method.uploads else "There is no robust rule for its server."
    return "--aggregation guarded, or median, trimmed, clipped (see fedquilt docs privacy)."


def edge_weights(method: type[Method]) -> str:
    """Return a sentence about whether the method uses the weights of edges, with its default settings."""
    from fedquilt.methods.base import RunContext
    from fedquilt.methods.settings import build_settings

    context = RunContext("", "disjoint", "accuracy", 1, 2, 1, 1, 0)
    why = method(build_settings(method, context, {}), context).ignores_edge_weights()
    return f"not used, {why}." if why else "used, relative to the client's mean."


def newcomers(method: type[Method]) -> str:
    """Return a sentence about what the method gives to a client that did not train, and what that client sends."""
    if method.newcomers:
        return method.newcomers if method.admits else f"none. {method.newcomers}"
    return "admitted." if method.admits else "none can be given a model."


def _print_messages(heading: str, specs: tuple[TensorSpec, ...]) -> None:
    from rich.table import Table

    if not specs:
        say(f"{heading}: nothing.")
        return
    table = Table(title=heading, title_justify="left", title_style="bold")
    table.add_column("What")
    table.add_column("What it reveals")
    for spec in specs:
        table.add_row(short(spec.name), spec.reveals)
    results().print(table)


def _secure(method: type[Method]) -> str:
    """Return whether the server can do with sums of uploads, in a sentence."""
    if method.single_uploads:
        return f"no, its {method.single_uploads}."
    return "yes, its server needs only sums over the clients (fedquilt docs privacy)."


def _idea(method: type[Method]) -> list[str]:
    """Return the lines of the method's idea: the second paragraph of its module's docstring."""
    module = inspect.getmodule(method)
    paragraphs = inspect.cleandoc((module.__doc__ if module else None) or "").split("\n\n")
    return [" ".join(paragraph.split()) for paragraph in paragraphs[1:2]]


def _varying(method: type[Method]) -> set[str]:
    """Return the settings whose default depends on the dataset or the partition."""
    from fedquilt.datasets.catalogue import datasets
    from fedquilt.methods.base import RunContext

    contexts = (RunContext(dataset.name, "disjoint", "accuracy", 1, 2, 10, 1, 0) for dataset in datasets())
    return {setting for context in contexts for setting in method.defaults(context)}


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
