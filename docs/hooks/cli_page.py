"""For MkDocs: reference/cli.md, made from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
import typer.main
from mkdocs.structure.files import File, Files

PAGE = "reference/cli.md"
_MARKUP = re.compile(r"\[/?[a-z ]*\]")  # [bold], [/], of Rich
HEAD = """# The command line

All commands and their options; `fedquilt COMMAND --help` prints the same. An error is one sentence on stderr. Exit status:
0 done, 1 done in part, 2 a mistake in what was given, 3 a limit of the machine, 130 stopped by Ctrl-C. `--debug` after any
command shows where an error came from.
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the page."""
    files.append(File.generated(config, PAGE, content=cli_markdown()))
    return files


def cli_markdown() -> str:
    """The page: a section for each command, with a table of its options."""
    from fedquilt.cli.app import app

    root = typer.main.get_command(app)
    return "\n".join([HEAD, *_sections(root, "fedquilt")])


def _sections(command: Any, name: str) -> Iterator[str]:
    commands = getattr(command, "commands", {})
    if name != "fedquilt":
        yield f"\n## {name}\n"
        yield _prose(command.help or "")
        yield from _parameters(command, name)
    for child, found in sorted(commands.items()):
        yield from _sections(found, f"{name} {child}")


def _parameters(command: Any, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    rows = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        record = parameter.get_help_record(context)
        if parameter.param_type_name == "argument":
            record = (parameter.make_metavar(context), getattr(parameter, "help", "") or "")
        if record is not None:
            rows.append(f"| `{_cell(record[0])}` | {_cell(_MARKUP.sub('`', record[1]))} |")
    if rows:
        yield "\n".join(["", "| Option | Meaning |", "|---|---|", *rows])


def _prose(text: str) -> str:
    """A help text as Markdown: lines that Click keeps apart (after \\b) are an example."""
    paragraphs = []
    for paragraph in _MARKUP.sub("", text).split("\n\n"):
        lines = [line.rstrip() for line in paragraph.splitlines()]
        if lines and lines[0].strip() == "\b":
            lines = ["    " + line for line in lines[1:]]
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs).replace("\b", "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
