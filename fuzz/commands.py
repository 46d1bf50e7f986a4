"""Run a command of fedquilt in a forked process, perhaps under a disturbance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fuzz.processes import Ended, forked


def command(
    arguments: Sequence[str],
    folder: Path,
    before: Callable[[], None] | None = None,
    after: Callable[[], Any] | None = None,
    **limits: float,
) -> Ended:
    """Run `fedquilt` with these arguments in a folder.

    Args:
        arguments: without the name of the program.
        folder: the working folder.
        before: called in the process first: hooks, limits.
        after: called in the process last, where the command ended with 0; `Ended.value` is what it returned.
        limits: see `forked`.
    """

    def run() -> Any:
        from fedquilt.cli.app import main

        _cells_in_this_process()
        if before is not None:
            before()
        status = main(list(arguments))
        return after() if after is not None and status == 0 else status

    return forked(run, folder, list(arguments), **limits)


def _cells_in_this_process() -> None:
    """Have studies run their cells here: a worker process would import everything anew."""
    from fedquilt.studies import workers
    from support.tiny_studies import Inline

    workers.WorkerProcess = Inline  # type: ignore[misc]
