"""A lock file: one process at a time in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedquilt.errors import FedquiltError


class HeldError(FedquiltError):
    """Another process holds the lock."""


@contextmanager
def locked(path: Path, what: Path) -> Iterator[None]:
    """Hold the lock file `path` for the block; an error at once when another process holds it.

    The operating system holds the lock, not the file's existence: it is free again however the process ends.
    """
    try:
        import fcntl
    except ImportError:  # There is no flock on this system, so nothing is held.
        yield
        return
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(handle, 20).decode("ascii", "replace").strip()
            by = f"process {holder}" if holder else "another process"
            raise HeldError(f"{what} is being written by {by}; wait until that ends, or stop it first.") from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
