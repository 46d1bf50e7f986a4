"""A terminal's output: one line on stderr, and consoles that escape what a terminal would obey."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from fedquilt.common.printable import printable

if TYPE_CHECKING:
    from rich.console import Console


def progress() -> Console:
    """Return the console on stderr, for bars."""
    return console_class()(file=sys.stderr, markup=False, emoji=False)


def aside(text: str) -> None:
    """Print one line on stderr. Where it cannot be written, such as to a log on a full disk, the command goes on without it."""
    with suppress(OSError):
        print(printable(text), file=sys.stderr, flush=True)


def number(value: float) -> str:
    """Format a metric in percent, or a dash before the first evaluation."""
    return f"{value:.2f}" if math.isfinite(value) else "-"


def duration(seconds: float) -> str:
    """Format a duration as `42 s`, `3 min` or `2 h 5 min`."""
    if not math.isfinite(seconds):
        return "? s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@cache
def console_class() -> Any:
    """Rich's console, made safe to print to."""
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
