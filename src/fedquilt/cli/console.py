"""Where the commands write: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# In a file or a pipe nobody needs 80 columns, and a folded table cannot be read.
_WIDE = 130


def results() -> Console:
    """For tables and paths."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _WIDE
    return Console(file=sys.stdout, highlight=False, width=width, soft_wrap=False)


def say(text: str) -> None:
    """One line on stdout, as it is: never folded, no markup."""
    print(text, file=sys.stdout, flush=True)


def aside(text: str) -> None:
    """One line on stderr, as it is."""
    print(text, file=sys.stderr, flush=True)
