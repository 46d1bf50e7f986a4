"""A group of processes that end with this process, however it ends, together with all processes that they started.

Every process of a group has the group's mark in its environment, and its own children inherit it.
`python -m fedquilt.federation.local.processes MARK FOLDER` is the watchdog of a group: it waits until the process that holds
its standard input is gone, kills all processes with the mark, and removes the folder.
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
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
TERMINATE_SECONDS = 8.0  # from SIGTERM to SIGKILL
MARK = "FEDQUILT_REHEARSAL"  # the environment variable with the mark


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_parent() -> None:
    """In a new process on Linux: have the kernel kill it when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ProcessGroup:
    """Processes that are ended at the end of the `with` block, with all that they started."""

    def __init__(self, logs: Path, folder: Path | None = None) -> None:
        """`logs` is the folder for their output; `folder` is removed at the end."""
        self.logs, self.folder = logs, folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.mark = secrets.token_hex(8)
        if sys.platform == "linux":
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans become our children, so that we can wait for them
        # -P: modules in the current folder must not shadow the installed ones
        watchdog = [sys.executable, "-P", "-m", "fedquilt.federation.local.processes", self.mark, str(folder or "")]
        self._watchdog = subprocess.Popen(watchdog, stdin=subprocess.PIPE, start_new_session=True)

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, *_: object) -> None:
        sessions = {session for process in self.started() if (session := _stat(process)[1])}
        self.end(list(self.running))
        for process in self.started():
            _kill(process)
        # Wait for the killed ones, and for orphans that ended by themselves.
        until = time.monotonic() + TERMINATE_SECONDS
        ours = {(os.getpid(), session) for session in sessions}
        while time.monotonic() < until and (left := [process for process in _process_ids() if _stat(process) in ours]):
            for process in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process, os.WNOHANG)
            time.sleep(0.02)
        self._watchdog.communicate()  # it finds nothing left to kill

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a process; its output is appended to `name`.log."""
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
        """Kill a process and all that it started."""
        self._kill_all([self.running.pop(name)], name)

    def kill_started(self, name: str, command: str) -> None:
        """Kill the processes started by `name` that have `command` in their command line."""
        for process in self.started(name):
            with contextlib.suppress(OSError):
                if command.encode() in Path(f"/proc/{process}/cmdline").read_bytes():
                    _kill(process)

    def end(self, names: Sequence[str]) -> None:
        """End processes: terminate, then kill after TERMINATE_SECONDS."""
        ending = {name: self.running.pop(name) for name in names}
        for process in ending.values():
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + TERMINATE_SECONDS
        for name, process in ending.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            self._kill_all([process], name)

    def _kill_all(self, processes: Sequence[subprocess.Popen[bytes]], name: str) -> None:
        for process in processes:
            if process.poll() is None:  # else its id may belong to another process by now
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for number in self.started(name):
            _kill(number)

    def started(self, name: str = "") -> list[int]:
        """The process called `name` and all that it started; without a name, those of the whole group (on Linux)."""
        return _marked(f"{self.mark}/{name}{'/' if name else ''}")

    def output(self, name: str, characters: int = 2000, start: int = 0) -> str:
        """The end of a process's log, from byte `start` on."""
        try:
            return (self.logs / f"{name}.log").read_bytes()[start:].decode(errors="replace")[-characters:]
        except FileNotFoundError:
            return ""

    def output_size(self, name: str) -> int:
        """The size of a process's log in bytes: where the output of the next one of this name starts."""
        log = self.logs / f"{name}.log"
        return log.stat().st_size if log.exists() else 0


def _marked(mark: str) -> list[int]:
    text = f"{MARK}={mark}".encode()
    return [process for process, env in _environments() if text in env]


def _environments() -> Iterator[tuple[int, bytes]]:
    """The environment of each process of this user; nothing where there is no /proc."""
    for process in _process_ids():
        with contextlib.suppress(OSError):
            yield process, Path(f"/proc/{process}/environ").read_bytes()


def _process_ids() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _stat(process: int) -> tuple[int, int]:
    """A process's parent and session; zeros where there is no such process."""
    try:
        _, parent, _, session = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:4]
    except (OSError, ValueError):
        return 0, 0
    return int(parent), int(session)


def _kill(process: int) -> None:
    """Kill a process, and wait for it where it is a child of this one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process, 0)


def watch(mark: str, folder: str) -> None:
    """Wait for the end of standard input, then kill all processes with the mark and remove the folder."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    clean = 0
    while clean < 3:  # also catches processes that are just being started
        found = _marked(mark + "/")
        for process in found:
            _kill(process)
        clean = 0 if found else clean + 1
        time.sleep(0.1)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(*sys.argv[1:3])
