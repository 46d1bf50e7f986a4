"""machine.json in a run folder: when and on what a run was last trained. For readers; nothing depends on it."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.common.files import write_json
from fedquilt.common.json_text import read_json
from fedquilt.devices.threads import available_cpus

if TYPE_CHECKING:
    import torch

MACHINE = "machine.json"


def note_machine(folder: Path, device: torch.device) -> None:
    """Write down the date, the processor, the accelerator, the threads and the versions of a training that ended."""
    import torch

    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    facts = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_name(),
        "cpus": available_cpus(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    write_json(folder / MACHINE, {name: value for name, value in facts.items() if value is not None})


def read_machine(folder: Path) -> dict[str, Any]:
    """What `note_machine` wrote; of a run of an earlier version the date of its result, or nothing."""
    try:
        facts = read_json(folder / MACHINE)
        return facts if isinstance(facts, dict) else {}
    except (OSError, ValueError):
        pass
    try:
        written = os.stat(folder / "result.json").st_mtime
    except OSError:
        return {}
    return {"date": datetime.fromtimestamp(written, UTC).isoformat(timespec="seconds")}


def cpu_name() -> str:
    """The processor's name as its vendor gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, names), platform.processor() or platform.machine())
