"""Lock files: one process at a time writes to a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedquilt.errors import FedquiltError

_POLL_SECONDS = 0.05  # between tries while another process holds the lock


class HeldError(FedquiltError):
    """Another process holds the lock."""


@contextmanager
def locked(path: Path, what: Path, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path` for the block; HeldError when another process still holds it after `wait` seconds.

    The operating system holds the lock, not the file's existence: it is free again however the process ends.
    """
    try:
        import fcntl
    except ImportError:  # There is no flock on this system, so nothing is held.
        yield
        return
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        until = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() >= until:
                    holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
                    by = f"process {holder}" if holder else "another process"
                    raise HeldError(
                        f"{what} is being written by {by}; wait until that ends, or stop it first."
                    ) from error
            time.sleep(_POLL_SECONDS)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
