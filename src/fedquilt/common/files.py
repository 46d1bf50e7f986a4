"""Atomic writes: after a kill at any moment a file has either its old content or its new one."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

TEMPORARY = ".tmp"
"""The suffix of a temporary file; its name begins with a dot and the name of the file that it becomes."""
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # not on every system


@contextmanager
def replacing(path: Path, mode: int = 0o666, sync: bool = True) -> Iterator[Path]:
    """Give a temporary file in the same folder; when the block ends, what was written there replaces `path`.

    When the block raises, `path` is untouched and the temporary file is deleted. Missing folders are made. The file has a name
    that nobody can guess and is made here, so that no link can be in its place, with the rights `mode`, less the umask.
    Without `sync` its content reaches the disk a little later: after a power cut it may be empty.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(8)}{TEMPORARY}")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, mode))
    try:
        yield temporary
        if sync:
            sync_file(temporary)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    # The new name is an entry of the folder, so the folder must reach the disk as well.
    if sync:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Have the entries of a folder reach the disk: the names of its files, not their content."""
    if os.name == "posix":
        _sync(path, os.O_RDONLY)


def sync_file(path: Path) -> None:
    """Have the content of a file reach the disk."""
    _sync(path, os.O_RDWR)


def sync_tree(folder: Path) -> None:
    """Have the files below a folder reach the disk, all in one step where the system has one: each alone takes milliseconds."""
    if hasattr(os, "sync"):
        os.sync()
        return
    for path in folder.rglob("*"):
        if path.is_file():
            sync_file(path)


def open_to_append(path: Path, mode: int = 0o666) -> FileIO:
    """Open a file to append bytes to, unbuffered; it is made with the rights `mode`, less the umask. No link is followed."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _NOFOLLOW, mode), "ab", buffering=0)


def write_all(file: FileIO, data: bytes) -> None:
    """Write all of `data` to a file without a buffer; a disk that fills up takes a part of it first."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically, as UTF-8 with the line ends it has."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` atomically as indented JSON, keys in their order, NaN and infinity as null."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """The text that `write_json` writes."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_npz(path: Path, arrays: Mapping[str, np.ndarray], mode: int = 0o600) -> None:
    """Write named arrays to `path` atomically, for its owner only; Python objects, which need pickle, are refused."""
    kept: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
    objects = [name for name, array in kept.items() if array.dtype.hasobject]
    if objects:
        raise TypeError(f"array '{objects[0]}' holds Python objects, which only pickle could save")
    with replacing(path, mode) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **kept)


def plain(value: Any) -> Any:
    """`value` in JSON's own types: arrays and tuples as lists, paths as text, NaN and infinity as None."""
    if value is None or isinstance(value, bool | int | str):
        return value if type(value) in (bool, int, str, type(None)) else _base(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(_base(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return [plain(item) for item in sorted(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # NumPy's arrays and scalars and PyTorch's tensors have it; asking so needs no import of PyTorch.
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def _base(value: Any) -> Any:
    """The plain int or str of an enum member or of another subclass."""
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
