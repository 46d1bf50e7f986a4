"""The command line. Heavy modules are imported when a command needs them, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `fedquilt` with these arguments (by default the process's own) and return the exit status."""
    from fedquilt.cli.app import main as run

    return run(arguments)
