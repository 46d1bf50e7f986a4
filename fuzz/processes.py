"""Call a function in a forked process, and see how it ended: status, output, time, memory."""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CPU_SECONDS = 30.0
WALL_SECONDS = 240.0
MEMORY_MB = 2048.0
CRASHED = 99  # the exit status of a process whose function raised
_TICK_MS = 20
_LONGEST_OUTPUT = 2**24  # bytes
# What commands import when they need it.
_MODULES = (
    *("matplotlib.pyplot", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "PIL.PngImagePlugin"),
    *(
        "xml.etree.ElementTree",
        "html.parser",
        "csv",
        "tokenize",
        "zipfile",
        "unicodedata",
        "encodings.idna",
        "rich.progress",
    ),
    "optuna",
    "pyarrow.parquet",
    "torch_geometric.nn",
    "fedquilt.api",
    "fedquilt.bench.measure",
    "fedquilt.cli.app",
    "fedquilt.export",
    "fedquilt.federation.coordinator.coordinator",
    "fedquilt.federation.site.check",
    "fedquilt.federation.site.request_handler",
    "fedquilt.reports.show",
    "fedquilt.studies.figures.drawing",
    "fedquilt.studies.report",
    "fedquilt.studies.runner",
    "fedquilt.tuning.search",
)


@dataclass
class Ended:
    """How a process ended.

    Attributes:
        status: its exit status, or minus the signal that ended it.
        value: what the function returned, as JSON.
        over: "time" or "memory" where it was killed for exceeding that.
    """

    command: list[str]
    status: int
    out: str
    err: str
    cpu: float
    peak_mb: float
    value: Any = None
    over: str = ""

    @property
    def said(self) -> str:
        """All that it printed."""
        return self.out + self.err


def import_everything() -> None:
    """Import what commands import when they need it. Nothing is computed: torch cannot be forked after a backward pass."""
    for name in _MODULES:
        importlib.import_module(name)
    from fedquilt.methods.base import methods
    from fedquilt.partition.kind import partition_kinds

    methods()
    partition_kinds()
    gc.collect()
    gc.freeze()


def forked(
    function: Callable[[], Any],
    folder: Path,
    command: list[str] | None = None,
    *,
    cpu_seconds: float = CPU_SECONDS,
    memory_mb: float = MEMORY_MB,
) -> Ended:
    """Call a function in a child process whose working folder is `folder`; its int result is the exit status.

    Any other result comes back in `Ended.value`.
    """
    # Pipes, not files: a limit on the size of files is one of the disturbances.
    pipes = [os.pipe() for _ in range(3)]
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(function, folder, *(write for _, write in pipes))
    for _, write in pipes:
        os.close(write)
    over, text = _watch(pid, [read for read, _ in pipes], cpu_seconds, memory_mb)
    _, status, usage = os.wait4(pid, 0)
    return Ended(
        command or [getattr(function, "__name__", "function")],
        os.waitstatus_to_exitcode(status),
        text[0],
        text[1],
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
        json.loads(text[2]) if text[2] else None,
        over,
    )


def _child(function: Callable[[], Any], folder: Path, out: int, err: int, back: int) -> None:
    status = CRASHED
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        # What a process with a pipe has: errors of encoding are errors on stdout, and escapes on stderr.
        sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), encoding="utf-8", line_buffering=True)  # noqa: SIM115
        sys.stderr = io.TextIOWrapper(
            open(2, "wb", closefd=False),  # noqa: SIM115
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=True,
        )
        os.chdir(folder)
        value = function()
        if isinstance(value, int) and not isinstance(value, bool):
            status = value
        else:
            os.write(back, json.dumps(value).encode())
            status = 0
        sys.stdout.flush()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        status = CRASHED
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)


def _watch(pid: int, pipes: list[int], cpu_seconds: float, memory_mb: float) -> tuple[str, list[str]]:
    """Read what a process writes until it ends; kill it where it takes too much, and say what of."""
    handle = os.pidfd_open(pid)
    poll = select.poll()
    for each in (handle, *pipes):
        poll.register(each, select.POLLIN)
    texts = {pipe: bytearray() for pipe in pipes}
    until = time.monotonic() + WALL_SECONDS
    over, ended = "", False
    while not ended:
        ready = [number for number, _ in poll.poll(_TICK_MS)]
        ended = handle in ready
        for pipe in pipes:
            if pipe in ready or ended:
                _drain(pipe, texts[pipe], poll, ended)
        if not ended and not over:
            over = _exceeded(pid, cpu_seconds, memory_mb) or ("time" if time.monotonic() > until else "")
            if over:
                os.killpg(pid, signal.SIGKILL)
    for each in (handle, *pipes):
        os.close(each)
    return over, [bytes(text).decode("utf-8", "surrogateescape") for text in texts.values()]


def _drain(pipe: int, text: bytearray, poll: select.poll, ended: bool) -> None:
    """Read what is there; after the process has ended, all that is left."""
    os.set_blocking(pipe, False)
    while True:
        try:
            data = os.read(pipe, 2**16)
        except BlockingIOError:
            return
        if not data:
            if not ended:
                poll.unregister(pipe)
            return
        if len(text) < _LONGEST_OUTPUT:
            text += data
        if not ended:
            return


def _exceeded(pid: int, cpu_seconds: float, memory_mb: float) -> str:
    """What a process has taken too much of."""
    page, ticks = os.sysconf("SC_PAGE_SIZE") / 2**20, os.sysconf("SC_CLK_TCK")
    try:
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError):
        return ""
    cpu = (int(fields[11]) + int(fields[12])) / ticks
    return "memory" if resident > memory_mb else "time" if cpu > cpu_seconds else ""
