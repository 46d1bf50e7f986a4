"""The most memory that a piece of work took, of this process and of its accelerator."""

from __future__ import annotations

import gc
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_RESIDENT = "VmHWM:"


class PeakMemory:
    """Counts from when it is made; `read` ends it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        with suppress(OSError):  # not every system lets the peak start anew
            _CLEAR.write_text("5")
        self._before = _resident()
        if device.type == "cuda" and torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats(device)

    def read(self) -> dict[str, int]:
        """Bytes: `host`, resident in this process; `device`, what PyTorch held on an accelerator, its context apart.

        Where the process had a higher peak before, which cannot start anew, `host` is left out.
        """
        resident = _resident()
        found = {"host": resident} if resident > self._before else {}
        if self._device.type == "cuda" and torch.cuda.is_initialized():
            found["device"] = torch.cuda.max_memory_reserved(self._device)
        return found


def release_memory() -> None:
    """Give what PyTorch holds on an accelerator and does not use back to it, for other processes."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        gc.collect()  # captured rounds hold memory, and may be part of cycles
        torch.cuda.empty_cache()


def _resident() -> int:
    """The peak of this process's resident memory."""
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(_RESIDENT))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
