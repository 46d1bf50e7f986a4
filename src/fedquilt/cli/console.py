"""The output of commands: results to stdout, everything else to stderr. Here, and only here, text is made safe to print."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from fedquilt.common.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

# The width of the output in a file or a pipe: wide enough that tables are not folded.
_WIDE = 130


def results() -> Console:
    """Return the console on stdout, for tables and paths."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _WIDE
    return _console_class()(file=sys.stdout, highlight=False, width=width, soft_wrap=False, markup=False, emoji=False)


def progress() -> Console:
    """Return the console on stderr, for bars."""
    return _console_class()(file=sys.stderr, markup=False, emoji=False)


def say(text: str) -> None:
    """Print text on stdout: never folded, no markup."""
    print(printable(text, lines=True), file=sys.stdout, flush=True)


def aside(text: str) -> None:
    """Print one line on stderr. Where it cannot be written, such as to a log on a full disk, the command goes on without it."""
    with suppress(OSError):
        print(printable(text), file=sys.stderr, flush=True)


@cache
def _console_class() -> Any:
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        """A console that escapes what a terminal would obey: names in tables and bars come from files and from peers."""

        def render_str(self, text: str, **options: Any) -> Any:
            # Before its width is measured; what is no plain text (a Text, a column of a bar) is escaped when it is rendered.
            return super().render_str(printable(text, lines=True), **options)

        def render(self, renderable: Any, options: Any = None) -> Any:
            for segment in super().render(renderable, options):
                # Rich's own commands, which move the cursor of a bar, are segments of another kind.
                if segment.control or not segment.text:
                    yield segment
                else:
                    yield Segment(printable(segment.text, lines=True), segment.style)

    return PrintableConsole
