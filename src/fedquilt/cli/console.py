"""The output of commands: results to stdout, everything else to stderr; text is made safe to print."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from fedquilt.common.console import aside, console_class, progress
from fedquilt.common.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["aside", "progress", "results", "say"]

# The width of the output in a file or a pipe: wide enough that tables are not folded.
_WIDE = 130


def results() -> Console:
    """Return the console on stdout, for tables and paths."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _WIDE
    console: Console = console_class()(
        file=sys.stdout, highlight=False, width=width, soft_wrap=False, markup=False, emoji=False
    )
    return console


def say(text: str) -> None:
    """Print text on stdout: never folded, no markup."""
    print(printable(text, lines=True), file=sys.stdout, flush=True)
