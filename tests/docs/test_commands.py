"""Every command in the documentation exists, with the options that it is given there."""

from __future__ import annotations

import shlex

import click
import pytest
import typer.main

from fedquilt.cli.app import app
from support.pages import ROOT, all_pages, commands, hook

ROOT_COMMAND = typer.main.get_command(app)
PLACEHOLDERS = {"fedquilt COMMAND --help"}


def parse(line: str) -> None:
    """Parse a command line without running it; an unknown command or option raises."""
    words = shlex.split(line.split(" | ")[0].split(" > ")[0].split(" && ")[0], comments=True)[1:]
    command, name = ROOT_COMMAND, "fedquilt"
    while isinstance(command, click.Group) or hasattr(command, "commands"):
        if not words or words[0].startswith("-"):
            return
        name = words.pop(0)
        assert name in command.commands, f"there is no command '{name}' in: {line}"
        command = command.commands[name]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("-") and not word.lstrip("-")[:1].isdigit():
            assert word.partition("=")[0] in known | {"--help", "-h", "--debug"}, (
                f"there is no option {word} in: {line}"
            )


PAGES = [page for page in all_pages() if any(commands(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_exist(page) -> None:
    for line in commands(page):
        if line not in PLACEHOLDERS:
            parse(line)


def test_a_wrong_command_is_found() -> None:
    assert len(PAGES) > 10
    for wrong in ("fedquilt rnu --dataset cora", "fedquilt run --datset cora", "fedquilt site chek site.yaml"):
        with pytest.raises(AssertionError, match="there is no"):
            parse(wrong)


def test_the_reference_lists_every_command_and_option() -> None:
    page = hook("cli_page").cli_markdown()
    assert "## fedquilt run\n" in page
    assert "## fedquilt site service\n" in page
    for option in ("--dataset", "--partition", "--workers", "--coordinator"):
        assert option in page
    assert "[bold]" not in page
