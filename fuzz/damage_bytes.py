"""Damage to a file: bits, bytes and digits changed, the end or all of it lost, parts doubled."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

# Numbers that differ from one time to the next anyway: to believe another one harms nobody.
_TIMES = re.compile(
    rb'"(?:seconds\w*|timings|phases|finished|time|at|prepare|train|evaluate|aggregate|rest)": ?(?:\{[^}]*\}|[^,}\n]*)'
)
_DIGIT = re.compile(rb"[0-9]")


def damage(path: Path, rng: random.Random) -> str:
    """Damage a file in a random way; what was done, in words."""
    sorts = [flip, flip, truncate, empty, delete, double, as_folder]
    data = path.read_bytes()
    if _digits(data, path):
        sorts += [change_digit] * 4
    return rng.choice(sorts)(path, rng)


def flip(path: Path, rng: random.Random) -> str:
    """Flip bits in some bytes."""
    data = bytearray(path.read_bytes())
    if not data:
        return append(path, rng)
    at = [rng.randrange(len(data)) for _ in range(rng.choice((1, 1, 2, 8)))]
    for place in at:
        data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"bits flipped at {', '.join(map(str, at))} of {path.name}"


def truncate(path: Path, rng: random.Random) -> str:
    """Lose the end."""
    data = path.read_bytes()
    left = rng.randrange(len(data)) if data else 0
    path.write_bytes(data[:left])
    return f"{path.name} truncated to {left} of {len(data)} bytes"


def empty(path: Path, rng: random.Random) -> str:
    """Lose everything but the name."""
    path.write_bytes(b"")
    return f"{path.name} emptied"


def delete(path: Path, rng: random.Random) -> str:
    """Lose the file."""
    path.unlink()
    return f"{path.name} deleted"


def append(path: Path, rng: random.Random) -> str:
    """Add bytes to the end."""
    with open(path, "ab") as file:
        file.write(rng.randbytes(rng.choice((1, 16, 300))))
    return f"bytes appended to {path.name}"


def double(path: Path, rng: random.Random) -> str:
    """Write it, or a line of it, twice."""
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    if path.suffix == ".jsonl" and lines and rng.random() < 0.7:
        chosen = rng.randrange(len(lines))
        lines.insert(rng.randrange(len(lines) + 1), lines[chosen])
        path.write_bytes(b"".join(lines))
        return f"line {chosen + 1} of {path.name} doubled"
    path.write_bytes(data + data)
    return f"{path.name} doubled"


def as_folder(path: Path, rng: random.Random) -> str:
    """Put a folder in its place."""
    path.unlink()
    path.mkdir()
    return f"a folder in place of {path.name}"


def change_digit(path: Path, rng: random.Random) -> str:
    """Change one digit of a number that matters."""
    data = bytearray(path.read_bytes())
    at = rng.choice(_digits(bytes(data), path))
    before = data[at]
    data[at] = rng.choice([digit for digit in b"123456789" if digit != before])
    path.write_bytes(data)
    around = bytes(data[max(0, at - 40) : at + 20])
    return f"{path.name}: digit at {at} changed from {chr(before)} to {chr(data[at])}, now {around!r}"


def _digits(data: bytes, path: Path) -> list[int]:
    """Where a text has digits that matter."""
    if path.suffix not in (".json", ".jsonl", ".yaml", ".csv") or not data:
        return []
    times = [match.span() for match in _TIMES.finditer(data)]
    found = (match.start() for match in _DIGIT.finditer(data))
    return [place for place in found if not any(start <= place < end for start, end in times)]


def copied(source: Path, target: Path) -> Path:
    """A copy of a file or a folder."""
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    return target
