"""Read NumPy archives (npz) that others wrote: everything that a file declares is checked before anything is unpacked.

The sizes come from three places: the zip directory, the header of each array, and the file itself. They have to agree: an array
takes as many bytes as its entry, and an entry not more than deflate can make of its compressed bytes. Nothing is unpickled.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from fedquilt.common.printable import printable
from fedquilt.common.read_limit import check_size
from fedquilt.errors import FedquiltError

HOW = "write it with numpy.savez or fedquilt.graphs.write_npz"
_NPY = b"\x93NUMPY"  # how a file with a single array begins
_DEFLATE = 1032  # how many times smaller deflate makes the most regular bytes; more is a lie
_MOST_ENTRIES = 10_000
_LONGEST_READ = 2**24  # bytes; only a directory of very many entries is read at once with more
_KINDS = "biufcUS"  # numbers and text; O is pickled, V and M are nothing that a graph has


class DamagedArchiveError(FedquiltError):
    """It is no npz file of plain arrays, or not a whole one."""


def read_arrays(path: Path, keys: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an npz file, or those among `keys` that it has. Each kind of damage has its own sentence."""
    if path.is_dir():
        raise FedquiltError(f"{path} is a folder, not a file; name the npz file in it.")
    if not path.exists():
        raise FedquiltError(f"There is no file '{path}'; check the path.")
    try:
        with BoundedReads(path) as file:
            if file.read(len(_NPY)) == _NPY:
                raise DamagedArchiveError(f"{path} holds a single array, not a graph; {HOW}.")
        with BoundedReads(path) as file, zipfile.ZipFile(file) as archive:
            entries = _entries(archive, path, keys)
            headers = {key: _header(archive, entry, path, key) for key, entry in entries.items()}
            check_size(path, sum(_memory(*header) for header in headers.values()), _which(headers))
            return {key: _array(archive, entry, path, key) for key, entry in entries.items()}
    except OSError as error:
        raise FedquiltError(
            f"{path} could not be opened ({error.strerror or error}); check that you may read it."
        ) from error
    except (zipfile.BadZipFile, zipfile.LargeZipFile, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        raise _not_an_archive(path) from error


def check_archive(path: Path) -> None:
    """Refuse an archive, for another library to read, whose entries are more than fits into memory or cannot be unpacked."""
    try:
        with BoundedReads(path) as file, zipfile.ZipFile(file) as archive:
            check_size(path, sum(entry.file_size for entry in _entries(archive, path, None).values()))
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise _not_an_archive(path) from error


class BoundedReads(io.FileIO):
    """A file of which nobody reads very much at once: a directory that says it is huge is not believed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")

    def read(self, size: int | None = -1) -> Any:
        """As any file's, but never very much at once."""
        if size is not None and size > _LONGEST_READ:
            raise zipfile.BadZipFile("a part of it is too long")
        return super().read(-1 if size is None else size)


def _entries(archive: zipfile.ZipFile, path: Path, keys: Iterable[str] | None) -> dict[str, zipfile.ZipInfo]:
    """The wanted entries, by the names of their arrays."""
    found: dict[str, zipfile.ZipInfo] = {}
    wanted = None if keys is None else set(keys)
    if len(archive.infolist()) > _MOST_ENTRIES:
        raise FedquiltError(f"{path} has more than {_MOST_ENTRIES:,} entries, which no graph has; {HOW}.")
    for entry in archive.infolist():
        key = entry.filename.removesuffix(".npy")
        if wanted is not None and key not in wanted:
            continue
        name = printable(key)
        if entry.flag_bits & 1:
            raise FedquiltError(f"{path} is encrypted; decrypt it first, or {HOW}.")
        if key in found:
            raise FedquiltError(f"{path} has the array '{name}' more than once; {HOW}.")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FedquiltError(f"{path} has the array '{name}' compressed in a way that NumPy does not write; {HOW}.")
        if entry.file_size > entry.compress_size * _DEFLATE + 64 or entry.compress_size > os.path.getsize(path):
            raise _damaged(path, name)
        found[key] = entry
    return found


def _header(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, key: str
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and dtype that an array declares, which have to take as many bytes as its entry has."""
    name = printable(key)
    try:
        with archive.open(entry) as file:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, _, dtype = read(file)
            start = file.tell()
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise _damaged(path, name) from error
    # NumPy evaluates the header as a Python literal and checks little of it.
    except (TypeError, SyntaxError, TokenError, RecursionError, MemoryError, AttributeError, IndexError):
        raise _damaged(path, name) from None  # a MemoryError is the parser's: the literal is nested too deep
    if dtype.hasobject:
        raise DamagedArchiveError(
            f"{path} holds pickled objects in '{name}', which could run code when read; "
            "save plain arrays of numbers or strings instead."
        )
    if dtype.kind not in _KINDS or dtype.subdtype is not None:
        raise FedquiltError(f"{path} has an array '{name}' of type {printable(str(dtype))}; save numbers or strings.")
    if any(side < 0 for side in shape) or math.prod(shape) * dtype.itemsize != entry.file_size - start:
        raise _damaged(path, name)
    return shape, dtype


def _memory(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Bytes that an array takes when it is read, converted to numbers of 4 or 8 bytes, and checked entry by entry."""
    converted = 0 if dtype == np.float32 else 8
    return math.prod(shape) * (dtype.itemsize + converted + 1)


def _which(headers: dict[str, Any]) -> str:
    largest = max(headers, key=lambda key: _memory(*headers[key]), default="")
    shape = " x ".join(f"{side:,}" for side in headers[largest][0]) if headers else ""
    return f"its arrays (the largest is '{printable(largest)}', {shape or 'a single value'})"


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, key: str) -> np.ndarray:
    try:
        with archive.open(entry) as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
            file.read(1)  # the end of the entry is where its checksum is compared
    except (ValueError, EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise _damaged(path, printable(key)) from error
    if array.dtype.kind == "U":
        _check_text(array, path, printable(key))
    return array


def _check_text(array: np.ndarray, path: Path, name: str) -> None:
    """Refuse text that is none: numbers beyond Unicode, which crash when they are shown, and halves of surrogate pairs."""
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint32 if array.dtype.isnative else ">u4")
    if codes.size and ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes <= 0xDFFF))).any():
        raise FedquiltError(f"{path} has text in '{name}' that is not Unicode; write it again.")


def _not_an_archive(path: Path) -> FedquiltError:
    return DamagedArchiveError(f"{path} is not an npz file, or is damaged; {HOW}.")


def _damaged(path: Path, name: str) -> FedquiltError:
    return DamagedArchiveError(
        f"{path} is damaged: its array '{name}' cannot be read; copy or download the file again."
    )
