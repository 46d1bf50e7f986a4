"""Processes that end with us, whatever happens: what they started, in groups and sessions of its own or not, ends too.

`python -m fedquilt.federation.local.processes MARK FOLDER` is the guard of a group: when the process that holds its input is
gone, even by -9, it ends what has the mark, and removes the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
PATIENCE = 8.0  # seconds from asking a process to end to ending it
MARK = "FEDQUILT_REHEARSAL"  # in the environment of all that was started


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_parent() -> None:
    """In a new process on Linux: be killed when the parent is, even by -9."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Group:
    """Processes that were started here; leaving the `with` block ends them and all that they started."""

    def __init__(self, logs: Path, folder: Path | None = None) -> None:
        """`logs` is for what they say; `folder` is removed with them."""
        self.logs, self.folder = logs, folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.mark = secrets.token_hex(8)
        if sys.platform == "linux":
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what outlives its parent is ours, so that it can be waited for
        # -P: else the folder that we were called in, whatever is in it, comes before the installed modules
        guard = [sys.executable, "-P", "-m", "fedquilt.federation.local.processes", self.mark, str(folder or "")]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        sessions = {session for process in self.started() if (session := _stat(process)[1])}
        self.end(list(self.running))
        for process in self.started():
            _kill(process)
        # Those that are on their way out, and those that ended by themselves: until they are gone.
        until = time.monotonic() + PATIENCE
        ours = {(os.getpid(), session) for session in sessions}
        while time.monotonic() < until and (left := [process for process in _numbers() if _stat(process) in ours]):
            for process in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process, os.WNOHANG)
            time.sleep(0.02)
        self._guard.communicate()  # finds nothing to end

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a process; what it says goes to `name`.log, after what an earlier one of the name said."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with open(self.logs / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**env, MARK: f"{self.mark}/{name}/"},
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        self.running[name] = process
        return process

    def kill(self, name: str) -> None:
        """End a process at once, with -9, and all that it started."""
        self._end_now([self.running.pop(name)], name)

    def kill_started(self, name: str, command: str) -> None:
        """End at once, with -9, those that run because of the process called `name` with `command` in their command line."""
        for process in self.started(name):
            with contextlib.suppress(OSError):
                if command.encode() in Path(f"/proc/{process}/cmdline").read_bytes():
                    _kill(process)

    def end(self, names: Sequence[str]) -> None:
        """End processes: they are asked first."""
        ending = {name: self.running.pop(name) for name in names}
        for process in ending.values():
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + PATIENCE
        for name, process in ending.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            self._end_now([process], name)

    def _end_now(self, processes: Sequence[subprocess.Popen[bytes]], name: str) -> None:
        for process in processes:
            if process.poll() is None:  # else its number may be another's by now
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for number in self.started(name):
            _kill(number)

    def started(self, name: str = "") -> list[int]:
        """The processes that run because of the one called `name`, or of any: itself, and all that it started (on Linux)."""
        return _marked(f"{self.mark}/{name}{'/' if name else ''}")

    def said(self, name: str, characters: int = 2000, start: int = 0) -> str:
        """The end of what a process said, but nothing of the log's first `start` bytes."""
        try:
            return (self.logs / f"{name}.log").read_bytes()[start:].decode(errors="replace")[-characters:]
        except FileNotFoundError:
            return ""

    def size(self, name: str) -> int:
        """How many bytes the log of a process has: what a new one of the name says comes after them."""
        log = self.logs / f"{name}.log"
        return log.stat().st_size if log.exists() else 0


def _marked(mark: str) -> list[int]:
    said = f"{MARK}={mark}".encode()
    return [process for process, env in _environments() if said in env]


def _environments() -> Iterator[tuple[int, bytes]]:
    """What each of this user's processes was started with; nothing where the system does not say."""
    for process in _numbers():
        with contextlib.suppress(OSError):
            yield process, Path(f"/proc/{process}/environ").read_bytes()


def _numbers() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _stat(process: int) -> tuple[int, int]:
    """A process's parent and its session; zeros where there is none."""
    try:
        _, parent, _, session = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:4]
    except (OSError, ValueError):
        return 0, 0
    return int(parent), int(session)


def _kill(process: int) -> None:
    """End a process that was started here and wait for it, if that is still to be done."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process, 0)


@cache
def end_with_parent(grace: float = 5.0) -> None:
    """End this process when its parent is gone and it has not ended by itself in `grace` seconds.

    Flower's processes see to that themselves, but may wait for ever for a SuperLink that is not there any more.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        time.sleep(grace)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def guard(mark: str, folder: str) -> None:
    """Wait until nobody holds our input, then end what has the mark."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    quiet = 0
    while quiet < 3:  # those that are just being started, too
        found = _marked(mark + "/")
        for process in found:
            _kill(process)
        quiet = 0 if found else quiet + 1
        time.sleep(0.1)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    guard(*sys.argv[1:3])
