"""The output of commands: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# The width of the output in a file or a pipe: wide enough that tables are not folded.
_WIDE = 130


def results() -> Console:
    """Return the console on stdout, for tables and paths."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _WIDE
    return Console(file=sys.stdout, highlight=False, width=width, soft_wrap=False)


def say(text: str) -> None:
    """Print one line on stdout unchanged: never folded, no markup."""
    print(text, file=sys.stdout, flush=True)


def aside(text: str) -> None:
    """Print one line on stderr unchanged."""
    print(text, file=sys.stderr, flush=True)
