"""Lock files: one process at a time writes to a folder."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedquilt.errors import FedquiltError

_HOLDER = 20  # bytes for the process that holds the lock; always as many, so that nothing has to be truncated
_POLL_SECONDS = 0.05  # between tries while another process holds the lock


class HeldError(FedquiltError):
    """Another process holds the lock."""


@contextmanager
def locked(path: Path, what: Path, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path` for the block; HeldError when another process still holds it after `wait` seconds.

    The operating system holds the lock, not the file's existence: it is free again however the process ends. A link is not
    followed, so that nobody who may write to the folder can have another file overwritten.
    """
    try:
        import fcntl
    except ImportError:  # There is no flock on this system, so nothing is held.
        yield
        return
    handle = _open(path, what)
    try:
        until = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() >= until:
                    holder = os.pread(handle, _HOLDER, 0).decode("ascii", "replace").strip()
                    by = f"process {holder}" if holder else "another process"
                    raise HeldError(
                        f"{what} is being written by {by}; wait until that ends, or stop it first."
                    ) from error
            time.sleep(_POLL_SECONDS)
        os.pwrite(handle, f"{os.getpid():<{_HOLDER - 1}}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _open(path: Path, what: Path) -> int:
    """Open the lock file, which only this user can; FedquiltError where something else has its name.

    HeldError where another process deleted the file after it was opened: it sweeps the folder.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _not_a_lock(path) from error
        raise FedquiltError(
            f"The lock {path} cannot be opened ({error.strerror}); check the folder's rights."
        ) from error
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(handle)
        if found.st_nlink == 0:
            raise HeldError(f"{what} is being deleted by another process; wait until that ends, and try again.")
        raise _not_a_lock(path)
    return handle


def _not_a_lock(path: Path) -> FedquiltError:
    return FedquiltError(
        f"{path} should be a lock file, but it is a link or something else; remove it, and ask who made it."
    )
