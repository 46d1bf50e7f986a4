"""How much memory a device has, and how much of it is free for this process."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

_MEMINFO = Path("/proc/meminfo")
_STATUS = Path("/proc/self/status")
# Limits of a container, with what it uses: version 2 of control groups, then version 1.
_GROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


@dataclass(frozen=True)
class Room:
    """Bytes of memory.

    Attributes:
        free: what this process can have now.
        most: what it could have if nothing else ran.
    """

    free: int
    most: int


def room_of(device: torch.device) -> Room | None:
    """The memory of a device; None where it is unknown."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        # What PyTorch holds and does not use is free as well.
        return Room(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device), total)
    if device.type != "cpu":
        return None
    rooms = [room for room in (_machine(), *_groups(), *_limits()) if room is not None]
    return Room(min(r.free for r in rooms), min(r.most for r in rooms)) if rooms else None


def _machine() -> Room | None:
    found = _table(_MEMINFO)
    if "MemAvailable" not in found or "MemTotal" not in found:
        return None
    swap = found.get("SwapTotal", 0)
    return Room(found["MemAvailable"], found["MemTotal"] + swap)


def _groups() -> Iterator[Room]:
    for limit, used in _GROUPS:
        with suppress(OSError, ValueError):  # no such version, or no limit ("max")
            most = int(limit.read_text())
            yield Room(max(0, most - int(used.read_text())), most)


def _limits() -> Iterator[Room]:
    """The limits of this process: its address space and its data."""
    used = _table(_STATUS)
    for kind, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY and name in used:
            yield Room(max(0, soft - used[name]), soft)


def _table(path: Path) -> dict[str, int]:
    """The lines "name: number kB" of a file of the system, in bytes; empty where there is none."""
    out = {}
    with suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, rest = line.partition(":")
            number = rest.split()
            if number and number[0].isdigit():
                out[name] = int(number[0]) * 1024
    return out
