"""A process that ends with its parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time

# A parent that starts a child, prints the child's number, and ends.
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", '''
import time
from fedquilt.federation.parent_process import exit_with_parent
exit_with_parent(0.1)
print("ready", flush=True)
time.sleep(600)
'''], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
"""


def test_a_child_ends_soon_after_its_parent() -> None:
    said = subprocess.run([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, check=True)
    child, until = int(said.stdout), time.monotonic() + 20
    while time.monotonic() < until:
        try:
            os.kill(child, 0)
            with open(f"/proc/{child}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":  # ended, and nobody has waited for it
                    return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.1)
    os.kill(child, 9)
    raise AssertionError("the child still runs")
