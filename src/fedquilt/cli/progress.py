"""Progress and notices of a command on stderr."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedquilt.cli.console import aside

if TYPE_CHECKING:
    from fedquilt.runs.callbacks import Callback


@contextmanager
def watching(quiet: bool) -> Iterator[list[Callback]]:
    """Show progress and notices during a `with` block; yield the callbacks for the training, none when quiet."""
    from fedquilt.runs.progress import shown_progress

    with showing_notices(logging.WARNING if quiet else logging.INFO), shown_progress(not quiet) as watch:
        yield watch


@contextmanager
def showing_notices(level: int) -> Iterator[None]:
    """Print what the package logs during a `with` block on stderr, from this level on."""
    logger, handler = logging.getLogger("fedquilt"), NoticeHandler(level)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class NoticeHandler(logging.Handler):
    """Prints log records as they are, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one."""
        aside(record.getMessage())
