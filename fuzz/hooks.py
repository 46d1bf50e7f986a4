"""Disturb a process at its k-th input or output operation: kill it, cut the power, or tell it that the disk is full."""

from __future__ import annotations

import errno
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

# Events of Python's audit hooks that change a folder. Each comes before the operation.
_EVENTS = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate")
_GROWING = ("open", "fsync", "os.mkdir")  # those for which a disk can be too full
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_LOSSY = (".json", ".jsonl", ".npz", ".safetensors", ".yaml", ".csv")


def each_operation(folder: Path, call: Callable[[str], None]) -> None:
    """Have `call` called with the name of each operation that changes something in a folder, before it happens."""
    place = str(folder)
    whole = os.fsync

    def audited(event: str, values: tuple[Any, ...]) -> None:
        if event in _EVENTS or (event == "open" and isinstance(values[2], int) and values[2] & _WRITES):
            path = values[0]
            text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
            if text and (not os.path.isabs(text) or text.startswith(place)):
                call(event)

    def fsync(handle: Any) -> None:
        call("fsync")
        whole(handle)

    os.fsync = fsync  # type: ignore[assignment]
    sys.addaudithook(audited)


class Counter:
    """Counts operations; `limit` of them may happen, then `at_limit` is called with the name of each further one."""

    def __init__(self, limit: int | None = None, at_limit: Callable[[str], None] | None = None) -> None:
        self.count, self.limit, self.at_limit = 0, limit, at_limit
        self._calling = False  # what `at_limit` does is not counted

    def __call__(self, event: str) -> None:
        """One more operation is about to happen."""
        if self._calling:
            return
        self.count += 1
        if self.limit is not None and self.count > self.limit and self.at_limit is not None:
            self._calling = True
            try:
                self.at_limit(event)
            finally:
                self._calling = False


def killed_after(operations: int, folder: Path) -> Callable[[], None]:
    """A hook for `fuzz.commands.command`: SIGKILL before the operation after so many."""

    def install() -> None:
        each_operation(folder, Counter(operations, lambda event: die()))

    return install


def power_cut_after(operations: int, folder: Path, seed: int) -> Callable[[], None]:
    """The same, and what was written to files since they were last synced is lost in part or in whole."""

    def install() -> None:
        rng = random.Random(seed)
        synced = {_inode(path): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
        whole = os.fsync

        def noted(handle: Any) -> None:
            whole(handle)
            stat = os.fstat(handle)
            synced[stat.st_dev, stat.st_ino] = stat.st_size

        def cut(event: str) -> None:
            for path in folder.rglob("*"):
                if path.is_file() and not path.is_symlink() and path.suffix in _LOSSY:
                    least, size = synced.get(_inode(path), 0), path.stat().st_size
                    if size > least:
                        os.truncate(path, rng.randint(least, size))
            die()

        os.fsync = noted  # type: ignore[assignment]
        each_operation(folder, Counter(operations, cut))

    return install


def disk_full_after(operations: int, folder: Path, lasting: bool) -> Callable[[], None]:
    """A hook: the operations that need space fail with ENOSPC after so many; only the first of them unless `lasting`."""

    def install() -> None:
        failed: list[str] = []

        def full(event: str) -> None:
            if event in _GROWING and (lasting or not failed):
                failed.append(event)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        each_operation(folder, Counter(operations, full))

    return install


def die() -> NoReturn:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _inode(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino
