"""The command line. Nothing heavy is imported before a command needs it, so that help comes at once."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `fedquilt` with these arguments (by default the process's own); the exit status."""
    from fedquilt.cli.app import main as run

    return run(arguments)
