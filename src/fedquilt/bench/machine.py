"""Describe the machine and the versions that a bench ran with; they determine which results are comparable."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fedquilt.common.version import VERSION
from fedquilt.runs.machine import cpu_name

PACKAGE = Path(__file__).resolve().parents[1]


def about(device: torch.device, threads: int) -> dict[str, Any]:
    """Return versions, the machine, the commit of this code if there is one, and the date (UTC)."""
    import torch_geometric

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "fedquilt": VERSION,
        "commit": commit(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device.type,
        "device_name": device_name(device),
        "cpu_count": os.cpu_count(),
        "threads": threads,
    }


def device_name(device: torch.device) -> str:
    """The device's name as its vendor gives it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_name()


def commit(folder: Path = PACKAGE) -> str | None:
    """Return the commit of the package in `folder`, with -changed if the code differs from it; None outside a checkout."""
    # An installed copy may be inside another project's repository.
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    head = _git(folder, "rev-parse", "--short", "HEAD")
    return f"{head}-changed" if head and _git(folder, "status", "--porcelain", "--", ".") else head


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command; None if it fails or git is not installed."""
    try:
        # Arguments are ours, there is no shell, and which git is found is the user's PATH.
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)  # noqa: S603, S607
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
