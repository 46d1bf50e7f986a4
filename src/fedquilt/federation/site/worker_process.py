"""A site's worker process: it keeps PyTorch, the graph and the cohort loaded between requests.

Flower starts a new process for every message. Most of the time of such a process would go to importing PyTorch and preparing
the graph. So the first one starts a worker process, and all of them pass their requests to it through a Unix socket that only
this user can open. The worker ends

- with Flower's SuperNode process,
- when it got no request for a while,
- when the process that asked is gone before the answer is ready: nobody waits for it.

The site's state is on disk before an answer is given, so a lost worker costs only its start. Where there is no worker, the
request is answered in the process that Flower started.

FEDQUILT_WARM=0 in the environment of `flower-supernode` turns the worker process off.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

IDLE_SECONDS = 900.0  # without a request until the worker ends
START_SECONDS = 60.0
WATCH_SECONDS = 0.5  # between looks whether the process that asked is still there
YOUNG_SECONDS = 60.0  # a socket file of this age may belong to a worker that is just starting
ENABLED = "FEDQUILT_WARM"  # the environment variable that turns the worker off
_LENGTHS = struct.Struct("!QQ")
Answer = tuple[dict[str, Any], bytes]


def ask(site: str, header: dict[str, Any], body: bytes) -> Answer:
    """The site's answer: from its worker process where there can be one, else from this process."""
    if os.environ.get(ENABLED, "1") == "0" or not hasattr(socket, "AF_UNIX"):
        return _answer_here(site, header, body)
    supernode = _supernode_process()
    try:
        with _connect_or_start(site, supernode) as connection:
            _send(connection, {**header, "site": site}, body)
            return _receive(connection)
    except (OSError, ValueError, EOFError):
        return _answer_here(site, header, body)


def _supernode_process() -> int:
    """The id of Flower's SuperNode process, which started this one."""
    return os.getppid()


def _answer_here(site: str, header: dict[str, Any], body: bytes) -> Answer:
    from fedquilt.federation.site.request_handler import RequestHandler

    return RequestHandler().reply(site, header, body)


def _connect_or_start(site: str, supernode: int) -> socket.socket:
    """A connection to the site's worker, which is started if there is none."""
    path = _socket_path(site, supernode)
    connection = _connect(path)
    if connection is not None:
        return connection
    path.unlink(missing_ok=True)
    _remove_dead_sockets(path.parent)
    # -P: modules in the current folder must not shadow the installed ones
    worker = subprocess.Popen(  # noqa: S603 - our own module with a path of ours, and no shell
        [sys.executable, "-P", "-m", "fedquilt.federation.site.worker_process", str(path), str(supernode)]
    )
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and worker.poll() is None:
        connection = _connect(path)
        if connection is not None:
            return connection
        time.sleep(0.02)
    raise OSError("the worker process did not start")


def _remove_dead_sockets(folder: Path) -> None:
    """Remove the socket files of workers that were killed."""
    for path in folder.glob("*.sock"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime > time.time() - YOUNG_SECONDS:
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(1.0)
                try:
                    connection.connect(str(path))
                except ConnectionRefusedError:
                    path.unlink()


def _connect(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def _socket_path(site: str, supernode: int) -> Path:
    """The socket of a worker, in a folder that only this user can enter. Paths of sockets must be short, so it is a hash."""
    folder = Path(tempfile.gettempdir()) / f"fedquilt-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or folder.is_symlink():
        raise OSError("the folder of the worker's socket is not ours alone")
    name = hashlib.sha256(f"{site}\n{supernode}".encode()).hexdigest()[:16]
    return folder / f"{name}.sock"


def _send(connection: socket.socket, header: dict[str, Any], body: bytes) -> None:
    text = json.dumps(header).encode()
    connection.sendall(_LENGTHS.pack(len(text), len(body)) + text)
    if body:  # the other end may have answered and closed the connection where nothing follows
        connection.sendall(body)


def _receive(connection: socket.socket) -> Answer:
    text, body = _LENGTHS.unpack(_receive_exactly(connection, _LENGTHS.size))
    header = json.loads(_receive_exactly(connection, text))
    return header, _receive_exactly(connection, body)


def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 2**20))
        if not part:
            raise EOFError("the connection was closed")
        parts += part
    return bytes(parts)


# -- in the worker process ------------------------------------------------------------------------------------------------


def serve(path: Path, supernode: int, idle: float = IDLE_SECONDS) -> None:
    """Answer requests one after the other, until the process `supernode` is gone or no request came for `idle` seconds."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        server.bind(str(path))
    finally:
        os.umask(before)
    try:
        server.listen()
        server.settimeout(idle)
        threading.Thread(target=_exit_with, args=(supernode, path), daemon=True).start()
        from fedquilt.federation.site.request_handler import RequestHandler

        handler = RequestHandler()
        with contextlib.suppress(TimeoutError):
            while True:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError, ValueError, EOFError):
                    connection.settimeout(None)
                    header, body = _receive(connection)
                    with _exit_when_abandoned(connection, path):
                        reply = handler.reply(header.pop("site"), header, body)
                    _send(connection, *reply)
    finally:
        path.unlink(missing_ok=True)
        server.close()


@contextlib.contextmanager
def _exit_when_abandoned(connection: socket.socket, path: Path) -> Iterator[None]:
    """Within the block, end this process when the one that asked is gone. The site's files are complete at any time."""
    answered = threading.Event()

    def watch() -> None:
        while not answered.wait(WATCH_SECONDS):
            if _is_closed(connection):
                path.unlink(missing_ok=True)
                os._exit(1)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        answered.set()
        watcher.join()  # before the answer is sent: whoever has it may close the connection


def _is_closed(connection: socket.socket) -> bool:
    """Whether the other end, which sends nothing more, has closed the connection."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _exit_with(process: int, path: Path) -> None:
    """End this process soon after another one ends."""
    while _exists(process):
        time.sleep(0.2)
    path.unlink(missing_ok=True)
    os._exit(0)


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError):  # on Linux, one that ended and was not waited for is gone, too
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
