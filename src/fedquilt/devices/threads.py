"""How many threads a process computes with, and how they wait for each other.

OpenMP's threads spin while they wait for the next piece of work, for some milliseconds. On a machine that is busy with
something else, the thread they wait for has no core, because the others spin on it: a training that takes 3 s alone took 70
beside four busy processes on two cores (`fedquilt docs speed`). Waiting passively costs a few microseconds for each piece of
work on an idle machine and never that. OpenMP reads its environment once, when PyTorch is loaded.

What may be used is what the process is given: its CPU affinity and the quota of its control group, not the machine's count.
OMP_NUM_THREADS, which `--threads` sets, always comes first. This module does not import PyTorch.
"""

from __future__ import annotations

import math
import os
import sys
from functools import cache
from pathlib import Path

COUNT, WAIT = "OMP_NUM_THREADS", "OMP_WAIT_POLICY"
# Variables by which a user says how threads wait: OpenMP's own, GNU's and LLVM's.
_SAID = (WAIT, "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def wait_passively() -> None:
    """Have OpenMP's threads wait without spinning, unless the user's environment says how; call it before PyTorch is loaded.

    Child processes inherit it. Does nothing where PyTorch is loaded already.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _SAID):
        os.environ[WAIT] = "passive"


def asked_threads() -> int | None:
    """The number of threads that the user's environment asks for (OMP_NUM_THREADS); None where it does not."""
    first = os.environ.get(COUNT, "").split(",")[0].strip()  # OpenMP allows a list, a number for each level of nesting
    return int(first) if first.isdigit() and int(first) > 0 else None


def threads_for(processes: int = 1) -> int:
    """The threads of each of some processes at once: as the user's environment asks, else each one's share of the CPUs."""
    return asked_threads() or max(1, available_cpus() // processes)


def available_cpus() -> int:
    """How many CPUs this process may use at once: by its affinity and by the quota of its control groups, at least one."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return max(1, count if quota is None else min(count, math.floor(quota + 1e-6)))


def cpu_quota(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """The smallest quota of this process's control groups and those above them, in CPUs; None where there is none.

    `membership` has a line "number:controllers:path" for each hierarchy: version 2 has one without controllers and the file
    cpu.max ("quota period" or "max period"), version 1 one for cpu with cpu.cfs_quota_us (-1: none) and cpu.cfs_period_us.
    """
    quotas = []
    for controllers, path in _groups(membership):
        place = root if not controllers else root / "cpu"
        if controllers and not place.is_dir():
            place = root / controllers
        group = Path(path.lstrip("/"))
        for part in (group, *group.parents):
            found = _quota(place / part, bool(controllers))
            if found is not None:
                quotas.append(found)
    return min(quotas, default=None)


def _groups(membership: Path) -> list[tuple[str, str]]:
    """The controllers ("" in version 2) and the path of each control group that may limit CPUs."""
    try:
        lines = membership.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
    parts = [line.split(":", 2) for line in lines]
    return [(p[1], p[2]) for p in parts if len(p) == 3 and (not p[1] or "cpu" in p[1].split(","))]


def _quota(group: Path, first_version: bool) -> float | None:
    try:
        if first_version:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        else:
            quota, period = (group / "cpu.max").read_text().split()
        cpus = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max": there is no quota
        return None
    return cpus if cpus > 0 else None


@cache
def use_available_cpus() -> None:
    """Have PyTorch use no more threads than there are CPUs for this process; nothing where OMP_NUM_THREADS says how many.

    PyTorch knows the affinity and not the quota: with sixteen threads and a quota of two CPUs, all sixteen are stopped for most
    of the time. The number is only ever lowered.
    """
    import torch

    if asked_threads() is None and torch.get_num_threads() > available_cpus():
        torch.set_num_threads(available_cpus())
