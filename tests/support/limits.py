"""Real limits of this process, for a while."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes, as on a disk that fills up."""
    with _lowered(resource.RLIMIT_FSIZE, size):
        yield


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """No file descriptor above `count`."""
    with _lowered(resource.RLIMIT_NOFILE, count):
        yield


@contextmanager
def _lowered(what: int, value: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))
