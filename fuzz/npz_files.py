"""npz archives: arrays of other types and shapes, numbers out of range, and archives that are no good as zip files."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.odd_values import ESCAPE

Arrays = dict[str, np.ndarray]
_BOMB_BYTES = 6 * 2**30


def odd_npz(good: Arrays, rng: random.Random) -> tuple[bytes, str]:
    """An archive that was meant to hold `good`, and what is odd about it."""
    if rng.random() < 0.6:
        arrays, what = dict(good), []
        for _ in range(rng.choice((1, 1, 2))):
            name = rng.choice(sorted(arrays)) if arrays else "x"
            sort = rng.choice(sorted(_ARRAYS))
            arrays = _ARRAYS[sort](arrays, name, rng)
            what.append(f"{name}: {sort}")
        return archive(arrays), ", ".join(what)
    sort = rng.choice(sorted(_ZIPS))
    return _ZIPS[sort](good, rng), sort


def archive(arrays: Arrays) -> bytes:
    """The bytes of an npz file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def _header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """The header of an npy file that declares a shape."""
    return _raw_header(repr({"descr": dtype, "fortran_order": False, "shape": shape}))


def _raw_header(text: str) -> bytes:
    data = text.encode("latin1") + b"\n"
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(data)) + data


# --- arrays


def _typed(convert: Callable[[np.ndarray], np.ndarray]) -> Any:
    def change(arrays: Arrays, name: str, rng: random.Random) -> Arrays:
        with np.errstate(all="ignore"):
            return {**arrays, name: convert(arrays[name])}

    return change


def _put(value: Any) -> Any:
    """Put a value somewhere in an array."""

    def change(arrays: Arrays, name: str, rng: random.Random) -> Arrays:
        array = arrays[name].astype(np.float64 if isinstance(value, float) else np.int64)
        if array.size:
            array.reshape(-1)[rng.randrange(array.size)] = value
        return {**arrays, name: array.astype(np.float32) if isinstance(value, float) and abs(value) < 1e39 else array}

    return change


def _names(text: str) -> Any:
    def change(arrays: Arrays, name: str, rng: random.Random) -> Arrays:
        key = rng.choice(("name", "class_names", "feature_names", "ids"))
        sizes = {"name": 0, "class_names": 3, "feature_names": 4, "ids": 60}
        return {**arrays, key: np.array([f"{text}{n}" for n in range(sizes[key])]) if sizes[key] else np.array(text)}

    return change


_ARRAYS: dict[str, Callable[[Arrays, str, random.Random], Arrays]] = {
    "gone": lambda a, n, r: {k: v for k, v in a.items() if k != n},
    "extra": lambda a, n, r: {**a, "extra": np.zeros(3)},
    "objects": _typed(lambda array: np.array([{"a": 1}, None], dtype=object)),
    "text": _typed(lambda array: np.array(["a", "b"])),
    "numbers as text": _typed(lambda array: array.astype(str)),
    "bytes": _typed(lambda array: array.astype("S8")),
    "complex": _typed(lambda array: array.astype(np.complex128)),
    "boolean": _typed(lambda array: array.astype(bool)),
    "half": _typed(lambda array: array.astype(np.float16)),
    "long double": _typed(lambda array: array.astype(np.longdouble)),
    "dates": _typed(lambda array: np.zeros(array.shape, dtype="datetime64[s]")),
    "records": _typed(lambda array: np.zeros(array.shape, dtype=[("a", "<i4"), ("b", "<f8")])),
    "unsigned": _typed(lambda array: np.full(array.shape, 2**64 - 1, dtype=np.uint64)),
    "one number": _typed(lambda array: np.array(5)),
    "nothing": _typed(lambda array: array[:0]),
    "no columns": _typed(lambda array: array.reshape(array.shape[0], -1)[:, :0]),
    "another axis": _typed(lambda array: array[..., None]),
    "transposed": _typed(lambda array: array.T),
    "flat": _typed(lambda array: array.reshape(-1)),
    "longer": _typed(lambda array: np.concatenate([array, array], axis=-1)),
    "shorter": _typed(lambda array: array[..., : array.shape[-1] // 2]),
    "big-endian": _typed(lambda array: array.astype(array.dtype.newbyteorder(">"))),
    "zeros": _typed(np.zeros_like),
    "64 axes": _typed(lambda array: np.zeros((1,) * 32)),
    "NaN": _put(float("nan")),
    "infinity": _put(float("inf")),
    "3e38": _put(3e38),
    "all 3e38": _typed(lambda array: np.full(array.shape, 3e38, dtype=np.float32)),
    "some 1e20": _typed(lambda array: np.where(np.arange(array.size).reshape(array.shape) % 7, array, 1e20)),
    "1e308": _put(1e308),
    "negative": _put(-1),
    "huge": _put(2**62),
    "out of range": _put(10**6),
    "escape in names": _names(ESCAPE),
    "long names": _names("x" * 5000),
    "NUL in names": _names("a\x00b"),
    "surrogate in names": _names("a\ud800"),
    "empty names": _names(""),
    "classes": lambda a, n, r: {**a, "classes": np.array(r.choice((-1, 0, 1, 2**40, 2**62, 3.0)))},
    "sparse": lambda a, n, r: {
        **{k: v for k, v in a.items() if k != "x"},
        "x_indptr": np.arange(61) * r.choice((1, -1, 10**9)),
        "x_indices": np.full(60, r.choice((0, 3, -1, 10**9))),
        "x_data": np.ones(r.choice((60, 3))),
        "x_shape": np.array(r.choice(((60, 4), (2**40, 4), (60, 2**50), (60,), (-1, 4)))),
    },
    "masks": lambda a, n, r: {
        **a,
        "train_mask": np.full(r.choice((60, 3)), r.choice((True, False))),
        "val_mask": np.full(60, r.choice((1, 2, 0))),
        "test_mask": np.full(60, r.choice((True, 0.5))),
    },
    "copies": lambda a, n, r: {**a, "copies": np.full(r.choice((60, 2)), r.choice((0, -5, 2**40)))},
}


# --- archives


def _members(good: Arrays) -> dict[str, bytes]:
    return {f"{name}.npy": _npy(array) for name, array in good.items()}


def _zip(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return buffer.getvalue()


def _with_x(good: Arrays, data: bytes) -> bytes:
    return _zip(_members(good) | {"x.npy": data})


def _bomb(good: Arrays, rng: random.Random) -> bytes:
    """Zeros that are small in the file and large in memory."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, data in _members(good).items():
            if name != "x.npy":
                file.writestr(name, data)
        rows = _BOMB_BYTES // 4 // 1024
        with file.open("x.npy", "w", force_zip64=True) as member:
            member.write(_header((rows, 1024)))
            block = bytes(2**22)
            # Enough of it to be believed; the rest is declared.
            for _ in range(rng.choice((1, 16, 128))):
                member.write(block)
    return buffer.getvalue()


def _flags(data: bytes, flag: int, method: int | None = None) -> bytes:
    """Set a flag (1: encrypted) or the compression method of all members."""
    changed = bytearray(data)
    for signature, at, how in ((b"PK\x03\x04", 6, 8), (b"PK\x01\x02", 8, 10)):
        start = 0
        while (start := data.find(signature, start)) >= 0:
            changed[start + at] |= flag
            if method is not None:
                changed[start + how : start + how + 2] = struct.pack("<H", method)
            start += 4
    return bytes(changed)


_ZIPS: dict[str, Callable[[Arrays, random.Random], bytes]] = {
    "encrypted": lambda good, rng: _flags(archive(good), 1),
    "unknown compression": lambda good, rng: _flags(archive(good), 0, 99),
    "says it is not compressed": lambda good, rng: _flags(archive(good), 0, 0),
    "bzip2": lambda good, rng: _zip(_members(good), zipfile.ZIP_BZIP2),
    "lzma": lambda good, rng: _zip(_members(good), zipfile.ZIP_LZMA),
    "bomb": _bomb,
    "declares more than it has": lambda good, rng: _with_x(good, _header((rng.choice((10**4, 10**9, 10**13)), 4))),
    "declares a negative shape": lambda good, rng: _with_x(good, _header((-1, 4)) + bytes(64)),
    "declares an overflow": lambda good, rng: _with_x(good, _header((2**40, 2**40)) + bytes(64)),
    "declares nothing": lambda good, rng: _with_x(good, _header((2**62, 0))),
    "a header that is no literal": lambda good, rng: _with_x(
        good, _raw_header("__import__('os').system('touch pwned')")
    ),
    "a deep header": lambda good, rng: _with_x(good, _raw_header("[" * rng.choice((80, 500, 9000)))),
    "a header of another type": lambda good, rng: _with_x(
        good, _raw_header("{'descr': 7, 'shape': 'x', 'fortran_order': 1}")
    ),
    "a long header": lambda good, rng: _with_x(good, _raw_header("{" + " " * 200_000 + "}")),
    "a header of objects": lambda good, rng: _with_x(good, _header((60, 4), "|O") + b"\x80\x04."),
    "not npy": lambda good, rng: _with_x(good, b"hello"),
    "an empty member": lambda good, rng: _with_x(good, b""),
    "a member outside": lambda good, rng: _zip(_members(good) | {"../../pwned.npy": _npy(np.zeros(3))}),
    "an empty archive": lambda good, rng: _zip({}),
    "one array": lambda good, rng: _npy(next(iter(good.values()))),
    "a pickle": lambda good, rng: (
        b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94."
    ),
    "empty": lambda good, rng: b"",
    "an npy header only": lambda good, rng: b"\x93NUMPY",
    "random": lambda good, rng: rng.randbytes(rng.choice((1, 4, 4000))),
    "a zip's start": lambda good, rng: b"PK\x03\x04" + rng.randbytes(300),
    "cut short": lambda good, rng: archive(good)[: rng.randrange(len(archive(good)))],
    "bits flipped": lambda good, rng: _flipped(archive(good), rng),
}


def _flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 4, 30))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)
