"""Errors that are the machine's and not the program's: a full disk, too little memory, too many files, a closed folder.

Libraries report them in many ways: as an OSError with a number, as a MemoryError, or as an error of their own whose text is all
there is. `find_limit` recognises them by class, number or text. It must not import PyTorch: the command line asks it for every
error.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

# Which resource is short. Access: a file or a folder may not be read or written. Name: there is nothing of that name, or there
# cannot be.
Kind = Literal["disk", "memory", "accelerator", "files", "processes", "access", "name"]

_NUMBERS: dict[Kind, tuple[int, ...]] = {
    "disk": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
    "memory": (errno.ENOMEM,),
    "files": (errno.EMFILE, errno.ENFILE),
    "processes": (errno.EAGAIN,),
    "access": (errno.EACCES, errno.EPERM, errno.EROFS),
    "name": (errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR),
}
_KIND_OF: dict[int, Kind] = {number: kind for kind, numbers in _NUMBERS.items() for number in numbers}
_ADVICE: dict[Kind, str] = {
    "disk": "free some room",
    "memory": "use smaller cohorts (--cohort-size), fewer clients or a smaller model, or free some memory",
    "accelerator": "use smaller cohorts (--cohort-size), a smaller model or --device cpu",
    "files": "raise the limit of open files (ulimit -n) or close other programs",
    "processes": "raise the limit of processes (ulimit -u) or close other programs",
    "access": "choose a file or folder that this user may use, or correct its permissions",
    "name": "choose another file or folder",
}
# What PyTorch, Rust and SQLite write where they raise an error of their own.
_ACCELERATOR = re.compile(
    r"(CUDA|HIP|MPS backend)( error:)? out of memory|CU\w+_STATUS_ALLOC_FAILED|accelerator's memory ran out"
)
_MEMORY = re.compile(
    r"can't allocate memory|[Cc]annot allocate memory|std::bad_alloc|Memory ran out|failed to map segment from shared object"
)
_TEXTS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (_ACCELERATOR, "accelerator"),
    (_MEMORY, "memory"),
    (re.compile(r"No space left on device|[Qq]uota exceeded|database or disk is full|disk has no room"), "disk"),
    (re.compile(r"Too many open files"), "files"),
    (re.compile(r"can't start new thread"), "processes"),
    (re.compile(r"Read-only file system|readonly database"), "access"),
)
_RUST_NUMBER = re.compile(r"\(os error (\d+)\)")
_SIZE = r"([\d.]+)\s*(bytes|[KMGTP]i?B)"
_ASKED = re.compile(rf"(?:Tried to allocate|tried to allocate|Unable to allocate)\s+{_SIZE}")
_FREE = re.compile(rf"{_SIZE} is free")
_UNITS = {"bytes": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


@dataclass(frozen=True)
class Limit:
    """A limit of the machine that was met.

    Attributes:
        kind: which.
        what: the beginning of a sentence: what could not be done.
        asked, free: bytes of memory that were asked for, and that were free, where the error says so.
    """

    kind: Kind
    what: str
    asked: int | None = None
    free: int | None = None

    @property
    def of_machine(self) -> bool:
        """Whether the machine is at fault; else it is the file or folder, which the user named or can change."""
        return self.kind not in ("access", "name")

    def sentence(self, then: str = "") -> str:
        """What is wrong and what to do; `then` is what to do after that, such as "resume with ..."."""
        return f"{self.what}; {_ADVICE[self.kind]}{', then ' + then if then else ''}."


def find_limit(error: BaseException) -> Limit | None:
    """The limit that caused an error, or the error from which it was raised; None where there is none.

    An error that was merely raised while another was handled is that of the machine only where the other was: a defect in the
    handling of a missing file is a defect.
    """
    for each, explicit in _chain(error):
        limit = _limit(each)
        # A lock that is held has the same number as a process that cannot be started, and is handled where it is met.
        handled = isinstance(each, BlockingIOError) and each is not error
        if limit is not None and not handled and (explicit or limit.of_machine):
            return limit
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of the processor or of an accelerator."""
    limit = find_limit(error)
    return limit is not None and limit.kind in ("memory", "accelerator")


def readable(size: float) -> str:
    """A number of bytes as text, such as 1.5 GiB."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"


def _chain(error: BaseException | None) -> Iterator[tuple[BaseException, bool]]:
    """The error and those that led to it, each with whether all links to it are explicit (`raise ... from`)."""
    seen: set[int] = set()
    explicit = True
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error, explicit
        explicit = explicit and error.__cause__ is not None
        error = error.__cause__ or error.__context__


def _limit(error: BaseException) -> Limit | None:
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno is not None:
        kind = _KIND_OF.get(error.errno)
        # The number alone does not say who refused: a socket that would block has EAGAIN as well.
        if kind is None or (kind == "processes" and not isinstance(error, BlockingIOError)):
            return None
        return Limit(kind, _said(kind, error.errno, error.filename))
    if isinstance(error, MemoryError):
        return _memory("memory", text)
    if type(error).__name__ == "OutOfMemoryError":
        return _memory(
            "accelerator" if _ACCELERATOR.search(text) else "memory", text
        )  # PyTorch's, or Ray's of a worker
    number = _RUST_NUMBER.search(text)
    if number is not None and int(number[1]) in _KIND_OF:
        kind = _KIND_OF[int(number[1])]
        return Limit(kind, _said(kind, int(number[1]), None))
    for pattern, kind in _TEXTS:
        found = pattern.search(text)
        if found:
            return _memory(kind, text) if kind in ("memory", "accelerator") else Limit(kind, _brief(kind, found[0]))
    return None


def _said(kind: Kind, number: int, filename: object) -> str:
    name = os.fsdecode(filename) if isinstance(filename, str | bytes) else ""
    if len(name) > 200:
        name = f"{name[:100]}...{name[-50:]}"
    return _brief(kind, os.strerror(number), name)


def _brief(kind: Kind, why: str, name: str = "") -> str:
    if kind in ("access", "name"):
        return f"{name or 'A file'} cannot be used ({why})"
    if kind == "disk":
        where = f"{name} could not be written" if name else "a file could not be written"
        return f"The disk has no room or failed: {where} ({why})"
    if kind == "files":
        return f"This process may not open another file ({why})"
    return f"This process may not start another thread or process ({why})" if kind == "processes" else why


def _memory(kind: Kind, text: str) -> Limit:
    asked, free = _bytes(_ASKED.search(text)), _bytes(_FREE.search(text))
    where = "The accelerator's memory" if kind == "accelerator" else "Memory"
    known = [f"{readable(asked)} were asked for"] if asked is not None else []
    known += [f"{readable(free)} were free"] if free is not None else []
    return Limit(kind, f"{where} ran out" + (f" ({', '.join(known)})" if known else ""), asked, free)


def _bytes(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    unit = found[2] if found[2] == "bytes" else found[2][0]
    return int(float(found[1]) * 1024 ** _UNITS[unit])
