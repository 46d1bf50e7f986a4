"""How much memory reading one file may take, and reading no more than that. See "Limits" in `fedquilt docs data`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fedquilt.errors import FedquiltError

VARIABLE = "FEDQUILT_READ_LIMIT"
"""The environment variable that sets the limit, such as 20G."""

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_UNKNOWN_MEMORY = 8 * 2**30  # where the system does not say how much there is
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def read_limit() -> int:
    """Bytes that the content of one file may take in memory: what FEDQUILT_READ_LIMIT says, else half of the memory."""
    chosen = os.environ.get(VARIABLE)
    if chosen is None:
        return _memory() // 2
    found = re.fullmatch(r"\s*(\d{1,15})\s*([kmgt]?)i?b?\s*", chosen, re.IGNORECASE)
    if found is None or int(found[1]) == 0:
        raise FedquiltError(f"{VARIABLE} has to be a size, such as 20G or 500M.")
    return int(found[1]) * _UNITS[found[2].lower()]


def check_size(path: Path, size: int, what: str = "its content") -> None:
    """Refuse a file whose content would take `size` bytes in memory, where that is over the limit."""
    limit = read_limit()
    if size > limit:
        raise FedquiltError(
            f"{path} is too large: {what} would take {in_words(size)} of memory, over the limit of {in_words(limit)}; "
            f"if you trust the file, raise the limit with {VARIABLE}={-(-size // 2**30)}G."
        )


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a file, or of a pipe; ValueError where there are more than `most`, before they are all read."""
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it is larger than {in_words(most)}")
    return data


def read_small(path: Path, most: int) -> bytes:
    """The bytes of a file beside a user's data; one sentence where there are more than `most`, or it cannot be opened."""
    try:
        return read_bounded(path, most)
    except ValueError as error:
        raise FedquiltError(f"{path} cannot be read: {error}.") from error
    except OSError as error:
        raise FedquiltError(
            f"{path} could not be opened ({error.strerror or error}); it has to be a file that you may read."
        ) from error


def in_words(size: int) -> str:
    """Bytes with a unit, such as 15.7 GB (10^9 bytes)."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if size >= 10**power:
            return f"{size // 10 ** (power - 1) / 10:,.1f} {unit}" if size < 10**18 else "over a million TB"
    return f"{size} bytes"


def _memory() -> int:
    """Bytes of memory that this process may have: the machine's, or the container's where that is less."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on this system
        return _UNKNOWN_MEMORY
    try:
        allowed = _CGROUP.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        allowed = "max"
    return min(found, int(allowed)) if allowed.isdigit() else found
