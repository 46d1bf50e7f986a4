"""Lock files: one process at a time, waiting, and the error that names the holder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedquilt.common.lock import HeldError, locked

HOLD = """
import sys, time
from pathlib import Path
from fedquilt.common.lock import locked
with locked(Path(sys.argv[1]), Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def hold(path: Path, seconds: float) -> subprocess.Popen[str]:
    """Another process that has the lock for so many seconds."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path), str(seconds)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_holder_is_named(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "lock", tmp_path),
        pytest.raises(HeldError, match=f"is being written by process {os.getpid()};"),
        locked(tmp_path / "lock", tmp_path),
    ):
        pass


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    with hold(tmp_path / "lock", 0.5), locked(tmp_path / "lock", tmp_path, wait=30.0):
        pass


def test_waiting_ends(tmp_path: Path) -> None:
    process = hold(tmp_path / "lock", 600)
    began = time.monotonic()
    try:
        with (
            pytest.raises(HeldError, match=f"process {process.pid};"),
            locked(tmp_path / "lock", tmp_path, wait=0.2),
        ):
            pass
        assert time.monotonic() - began >= 0.2
    finally:
        process.kill()
        process.communicate()
    with locked(tmp_path / "lock", tmp_path):  # the system freed it
        pass


def test_an_error_in_the_block_frees_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "lock", tmp_path):
        _ = 1 / 0
    with locked(tmp_path / "lock", tmp_path):
        pass
