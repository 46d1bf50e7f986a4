"""The peak of a piece of work: not that of what came before it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from fedquilt.devices import peak_memory
from fedquilt.devices.peak_memory import PeakMemory, release_memory

SIZE = 300 * 10**6


def test_the_peak_counts_what_was_freed_and_not_what_came_before() -> None:
    code = (
        "import torch, numpy as np; from fedquilt.devices.peak_memory import PeakMemory\n"
        "def peak(size):\n"
        "    found = PeakMemory(torch.device('cpu')); np.ones(size, dtype=np.uint8).sum(); print(found.read().get('host', 0))\n"
        f"peak({SIZE}); peak(10 ** 6)"
    )
    large, small = map(
        int, subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.split()
    )
    assert large - small > SIZE // 2


def test_without_the_systems_files_the_processs_own_peak_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(peak_memory, "_RESIDENT", "VmNothing:")
    peak = PeakMemory(torch.device("cpu"))
    assert peak._before > 10**7
    assert peak.read().get("host", 10**8) > 10**7
    release_memory()  # nothing to release without an accelerator
