"""Lock files: one process at a time, waiting, and the error that names the holder."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedquilt.common.lock import HeldError, locked
from fedquilt.errors import FedquiltError

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


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    target, lock = tmp_path / "precious", tmp_path / "folder" / "lock"
    target.write_text("a thesis\n" * 9)
    lock.parent.mkdir()
    for make in (lock.symlink_to, lock.hardlink_to):
        make(target)
        with pytest.raises(FedquiltError, match="it is a link or something else; remove it"), locked(lock, lock.parent):
            pass
        lock.unlink()
        assert target.read_text() == "a thesis\n" * 9
    lock.symlink_to(tmp_path / "nothing")  # nor is a file made where a link leads
    with pytest.raises(FedquiltError, match="is a link"), locked(lock, lock.parent):
        pass
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_no_lock(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "lock")
    with pytest.raises(FedquiltError, match="should be a lock file"), locked(tmp_path / "lock", tmp_path):
        pass


def test_only_its_owner_may_open_the_lock(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with locked(tmp_path / "lock", tmp_path):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600


def test_what_was_in_the_lock_before_is_not_cut_off(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"x" * 50)
    with locked(tmp_path / "lock", tmp_path):
        assert (tmp_path / "lock").read_bytes()[20:] == b"x" * 30


def test_a_lock_that_is_deleted_while_it_is_opened_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a process that sweeps the folder, at the moment between the two calls."""
    fstat = os.fstat

    def late(handle: int) -> os.stat_result:
        (tmp_path / "lock").unlink(missing_ok=True)
        return fstat(handle)

    monkeypatch.setattr(os, "fstat", late)
    with pytest.raises(HeldError, match="is being deleted by another process"), locked(tmp_path / "lock", tmp_path):
        pass
