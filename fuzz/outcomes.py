"""What a folder says came of a command, without what differs from one time to the next.

Times, hashes of times, and checkpoints: which of the old ones are still there is not part of a result.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

_VARIES = re.compile(
    r"seconds|timings|phases|finished|^time$|^at$|sha256|digest|seal|hash|^mac$|began|started|ended|process|host"
)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LEFT_OUT = re.compile(r"\.lock$|\.png$|\.html$|\.md$|\.tex$|\.svg$|\.pdf$|^logs/|figures/|checkpoints/|journal\.jsonl")


def outcome(folder: Path) -> dict[str, Any]:
    """By relative path, what each file of a folder holds."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not _LEFT_OUT.search(name) and not path.name.endswith(".tmp"):
            try:
                found[name] = _content(path, str(folder.resolve()))
            except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                found[name] = f"cannot be read: {error}"
    return found


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The files in which two outcomes differ, or that only one of them has."""
    return [name for name in sorted({*one, *other}) if not alike(one.get(name), other.get(name))]


def alike(one: Any, other: Any) -> bool:
    """Whether two values of JSON are equal, numbers to nine digits: a fifteenth digit is no other result."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def steady(value: Any, place: str = "") -> Any:
    """JSON without what varies; `place` is a path that becomes @."""
    if isinstance(value, dict):
        if "sha256" in value:  # a seal of a file, which may have times in it
            return "sealed"
        return {name: steady(each, place) for name, each in value.items() if not _VARIES.search(name)}
    if isinstance(value, list):
        return [steady(each, place) for each in value]
    if isinstance(value, str):
        return "sealed" if _SHA256.fullmatch(value) else value.replace(place, "@") if place else value
    return value


def _content(path: Path, place: str) -> Any:
    if path.suffix == ".npz":
        import numpy as np

        with np.load(path, allow_pickle=False) as arrays:
            return {name: _hash(arrays[name].tobytes()) for name in sorted(arrays.files)}
    data = path.read_bytes()
    if path.suffix == ".json":
        return steady(json.loads(data), place)
    if path.suffix == ".jsonl":
        return [steady(json.loads(line), place) for line in data.splitlines()]
    return _hash(data.replace(place.encode(), b"@"))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
