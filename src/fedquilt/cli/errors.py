"""Errors on the command line: one sentence on stderr and an exit status."""

from __future__ import annotations

import difflib
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedquilt.cli.console import aside
from fedquilt.common.printable import printable, shortened
from fedquilt.errors import FedquiltError

WRONG_INPUT = 2
DEFECT = 1
STOPPED = 130


class StoppedError(Exception):
    """The user pressed Ctrl-C; the message says how to resume."""


@contextmanager
def resumable(folders: list[Path]) -> Iterator[None]:
    """Turn Ctrl-C inside the block into a `StoppedError` that names the folder to resume, if there is one yet."""
    try:
        yield
    except KeyboardInterrupt:
        how = f"; continue with 'fedquilt resume {folders[0]}'." if folders else " before anything was written."
        raise StoppedError("stopped" + how) from None


def explain(error: BaseException, debug: bool) -> int:
    """Print the sentence for an error (its traceback first, with `debug`) and return the exit status."""
    if debug and not isinstance(error, StoppedError):
        print(printable("".join(traceback.format_exception(error)), lines=True), file=sys.stderr, end="")
    if isinstance(error, FedquiltError):
        return _print(str(error), WRONG_INPUT)
    if isinstance(error, StoppedError):
        return _print(str(error), STOPPED)
    # Depending on its version, Typer uses click or a copy of it; the errors of both look like this.
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        message = usage_sentence(error)
        return _print(message, WRONG_INPUT) if message else WRONG_INPUT
    what = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
    return _print(f"something went wrong inside: {what}; run again with --debug and report it.", DEFECT)


def usage_sentence(error: Any) -> str:
    """Return one sentence for a wrong option, argument or command; empty if the help was already shown."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "fedquilt"
    wrong = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and wrong:
        known = [name for p in context.command.params for name in p.opts] if context is not None else []
        return _nearest("option", wrong, [*known, "--debug"], command)
    unknown = re.match(r"No such command '(.*?)'", error.format_message())
    if unknown and context is not None:
        return _nearest("command", unknown[1], context.command.commands, command)
    text = " ".join(error.format_message().split()).rstrip(".")
    return f"{text}; see '{command} --help'."


def _nearest(kind: str, wrong: str, known: Iterable[str], command: str) -> str:
    near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"see '{command} --help'."
    return f"There is no {kind} '{wrong}'; {hint}"


def _print(sentence: str, status: int) -> int:
    aside(f"fedquilt: {shortened(sentence)}")
    return status
