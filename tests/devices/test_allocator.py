"""The C allocator: freed memory stays in the process, so allocating the same size again touches no new pages."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Page faults of ten times the same 40 MiB, when the heap has settled.
COUNT = """
import resource, sys, torch
from fedquilt.devices.allocator import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
for turn in range(40):
    if turn == 30:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(10 * 2**20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_memory_of_a_round_is_not_faulted_in_again() -> None:
    kept, usual = (
        int(subprocess.run([sys.executable, "-c", COUNT, which], capture_output=True, check=True, text=True).stdout)
        for which in ("kept", "usual")
    )
    assert kept < 100
    assert usual > 1000
