"""Errors on the command line: one sentence on stderr and an exit status."""

from __future__ import annotations

import difflib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedquilt.cli.console import aside
from fedquilt.common.machine_limits import find_limit
from fedquilt.common.printable import printable, shortened
from fedquilt.errors import FedquiltError, MachineLimitError, ProblemsError

WRONG_INPUT = 2
LIMIT = 3
DEFECT = 1
STOPPED = 130
AGAIN = "run the same command again"


class StoppedError(Exception):
    """The user pressed Ctrl-C; the message says how to resume."""


class IncompleteError(Exception):
    """A part of the work failed and the rest is done; the message names the part."""


@contextmanager
def resumable(folders: Sequence[Path]) -> Iterator[None]:
    """Say how to go on after Ctrl-C or a limit of the machine inside the block; `folders` has the folder once there is one."""
    try:
        with limits_explained(lambda: f"resume with 'fedquilt resume {folders[0]}'" if folders else AGAIN, folders):
            yield
    except KeyboardInterrupt:
        how = f"; continue with 'fedquilt resume {folders[0]}'." if folders else " before anything was written."
        raise StoppedError("stopped" + how) from None


@contextmanager
def limits_explained(then: Callable[[], str] = lambda: AGAIN, folders: Sequence[Path] = ()) -> Iterator[None]:
    """Turn a limit of the machine inside the block into a `MachineLimitError` that says what to do `then`.

    `folders` has the folder that is written, once there is one.
    """
    try:
        yield
    except Exception as error:
        if not _is_machines(error, running=bool(folders)) or getattr(error, "lasting", False):
            raise
        raise MachineLimitError(limit_sentence(error, then())) from error


def _is_machines(error: Exception, running: bool) -> bool:
    """Whether a limit of the machine caused an error, rather than what the user gave or a defect."""
    if isinstance(error, MachineLimitError):
        return True
    limit = find_limit(error)
    if limit is None:
        return False
    # A folder that was closed while a run wrote to it is no wrong input; one that could not be read at the start is.
    closed = running and limit.kind == "access" and not isinstance(error, FedquiltError)
    return limit.of_machine or closed


def limit_sentence(error: BaseException, then: str = "") -> str:
    """The sentence for a limit: that of the error itself where it has one, and what to do then."""
    limit = find_limit(error)
    if limit is not None and not isinstance(error, FedquiltError):
        return limit.sentence(then)
    own = str(error)
    return f"{own.rstrip('.')}; then {then}." if then and then not in own else own


def explain(error: BaseException, debug: bool) -> int:
    """Print the sentence for an error (its traceback first, with `debug`) and return the exit status."""
    if debug and not isinstance(error, StoppedError | IncompleteError):
        print(printable("".join(traceback.format_exception(error)), lines=True), file=sys.stderr, end="")
    if isinstance(error, MachineLimitError):
        return _print(str(error), LIMIT)
    if isinstance(error, StoppedError):
        return _print(str(error), STOPPED)
    if isinstance(error, IncompleteError):
        return _print(str(error), DEFECT)
    # Depending on its version, Typer uses click or a copy of it; the errors of both look like this.
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        message = usage_sentence(error)
        return _print(message, WRONG_INPUT) if message else WRONG_INPUT
    limit = find_limit(error)
    if limit is not None:
        return _print(limit_sentence(error), LIMIT if limit.of_machine else WRONG_INPUT)
    if isinstance(error, ProblemsError):
        return _print(error.headline, WRONG_INPUT, error.details)
    if isinstance(error, FedquiltError):
        return _print(str(error), WRONG_INPUT)
    what = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
    return _print(f"something went wrong inside: {what}; run again with --debug and report it.", DEFECT)


def drop_unwritten_output() -> None:
    """Drop what stdout still holds where it cannot be written: Python would complain about it at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the process ends)


def usage_sentence(error: Any) -> str:
    """Return one sentence for a wrong option, argument or command; empty if the help was already shown."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "fedquilt"
    wrong = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and wrong:
        known = [name for p in context.command.params for name in p.opts] if context is not None else []
        return _as_setting(wrong, known) or _nearest("option", wrong, [*known, "--debug"], command)
    unknown = re.match(r"No such command '(.*?)'", error.format_message())
    if unknown and context is not None:
        return _nearest("command", unknown[1], context.command.commands, command)
    text = " ".join(error.format_message().split()).rstrip(".")
    if "unexpected extra argument" in text and context is not None:
        text += _about_extra(context)
    return f"{text}; see '{command} --help'."


def _about_extra(context: Any) -> str:
    """What to say of a word that belongs to no option: it is what a pattern stood for, or a name without its option."""
    if context.params.get("clients_from"):
        return "; a pattern after --clients-from, such as 'hospital-*/', needs quotes"
    options = [name for parameter in context.command.params for name in parameter.opts]
    if "--dataset" not in options:
        return ""
    methods = "methods with --methods" if "--methods" in options else "a method with --method"
    return f"; name {methods} and a graph with --dataset"


def _as_setting(wrong: str, known: Sequence[str]) -> str:
    """What to say of a method's setting that was given as an option; "" where it is none, or the command takes no settings."""
    if "--set" not in known:
        return ""
    from fedquilt.runs.misplaced import setting_as_option

    name = wrong.lstrip("-").replace("-", "_")
    found = setting_as_option(name)
    return "" if found is None else f"There is no option '{wrong}'; {str(found)[:1].lower()}{str(found)[1:]}"


def _nearest(kind: str, wrong: str, known: Iterable[str], command: str) -> str:
    near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"see '{command} --help'."
    return f"There is no {kind} '{wrong}'; {hint}"


def _print(sentence: str, status: int, details: Sequence[str] = ()) -> int:
    aside(f"fedquilt: {shortened(sentence)}")
    for line in details:
        aside(shortened(line))
    return status
