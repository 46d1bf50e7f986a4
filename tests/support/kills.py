"""Kill a process at a chosen write: a forked child ends with `os._exit` just before it, and cleans nothing up."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_KILLED = 9
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_EVENTS = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod")


def killed_at(write: int, folder: Path, work: Callable[[], Any]) -> bool:
    """Do `work` in a child that dies before its `write`-th write in `folder` (1, 2, ...); False where it came to its end.

    A write is a file opened for writing, a sync, a rename, a folder made, or something deleted.
    """
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # the parent's threads are not in the child
        _die_at(write, folder)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, _KILLED), f"the child failed by itself before write {write}"
    return status == _KILLED


def _die_at(write: int, folder: Path) -> None:
    root, left, sync = os.path.realpath(folder), [write], os.fsync

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            os._exit(_KILLED)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(path, str | bytes | os.PathLike) and flags & _WRITING and _inside(path):
                count()
        elif event in _EVENTS and _inside(args[0]):
            count()

    def _inside(path: Any) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and os.path.abspath(os.fsdecode(path)).startswith(root)

    def counted_sync(handle: int) -> None:
        count()
        sync(handle)

    os.fsync = counted_sync
    sys.addaudithook(hook)
