"""A site's warm process: PyTorch is loaded and the graph prepared once, not for every message.

Flower starts a new process for every message, and most of what that one would spend is the import of PyTorch and the
preparation of the graph. So the first starts a helper, and this and the later ones hand their requests to it through a socket
that only this user can open. The helper ends with Flower's process at the site, when nothing was asked of it for a while, or
when whoever asked is gone before the answer is there: nobody waits for it, and it may never come.
What a site keeps is on its disk before an answer is given, so a helper that is lost costs its start; without one, a request is
answered in place.

FEDQUILT_WARM=0 in the environment of `flower-supernode` turns it off.
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

IDLE_SECONDS = 900.0
START_SECONDS = 60.0
WATCH_SECONDS = 0.5  # between looks whether the one that asked is still there
YOUNG_SECONDS = 60.0  # a socket of this age may be one that is about to be listened on
_LENGTHS = struct.Struct("!QQ")
Answer = tuple[dict[str, Any], bytes]


def ask(site: str, header: dict[str, Any], body: bytes) -> Answer:
    """The site's answer, from its helper where there can be one, else from here."""
    if os.environ.get("FEDQUILT_WARM", "1") == "0" or not hasattr(socket, "AF_UNIX"):
        return _here(site, header, body)
    keeper = _keeper()
    try:
        with _connected(site, keeper) as line:
            _send(line, {**header, "site": site}, body)
            return _receive(line)
    except (OSError, ValueError, EOFError):
        return _here(site, header, body)


def _keeper() -> int:
    """Flower's process at the site, which outlives this one."""
    return os.getppid()


def _here(site: str, header: dict[str, Any], body: bytes) -> Answer:
    from fedquilt.federation.site.dispatch import Answering

    return Answering().reply(site, header, body)


def _connected(site: str, keeper: int) -> socket.socket:
    """A line to the site's helper, which is started if need be."""
    path = _path(site, keeper)
    line = _try(path)
    if line is not None:
        return line
    path.unlink(missing_ok=True)
    _sweep(path.parent)
    # -P: else the folder that we run in, whatever is in it, comes before the installed modules
    helper = subprocess.Popen(
        [sys.executable, "-P", "-m", "fedquilt.federation.site.worker_process", str(path), str(keeper)]
    )
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and helper.poll() is None:
        line = _try(path)
        if line is not None:
            return line
        time.sleep(0.02)
    raise OSError("the helper did not start")


def _sweep(folder: Path) -> None:
    """Remove the sockets of helpers that were killed: nobody listens on them."""
    for path in folder.glob("*.sock"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime > time.time() - YOUNG_SECONDS:
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(1.0)
                try:
                    line.connect(str(path))
                except ConnectionRefusedError:
                    path.unlink()


def _try(path: Path) -> socket.socket | None:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(str(path))
    except OSError:
        line.close()
        return None
    return line


def _path(site: str, keeper: int) -> Path:
    """Where the helper listens: in a folder that only this user can enter. Names of sockets are short."""
    folder = Path(tempfile.gettempdir()) / f"fedquilt-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or folder.is_symlink():
        raise OSError("the folder of the helper's socket is not ours alone")
    name = hashlib.sha256(f"{site}\n{keeper}".encode()).hexdigest()[:16]
    return folder / f"{name}.sock"


def _send(line: socket.socket, header: dict[str, Any], body: bytes) -> None:
    text = json.dumps(header).encode()
    line.sendall(_LENGTHS.pack(len(text), len(body)) + text)
    line.sendall(body)


def _receive(line: socket.socket) -> Answer:
    text, body = _LENGTHS.unpack(_exactly(line, _LENGTHS.size))
    header = json.loads(_exactly(line, text))
    return header, _exactly(line, body)


def _exactly(line: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = line.recv(min(count - len(parts), 2**20))
        if not part:
            raise EOFError("the line was closed")
        parts += part
    return bytes(parts)


# -- the helper -----------------------------------------------------------------------------------------------------------


def serve(path: Path, keeper: int, idle: float = IDLE_SECONDS) -> None:
    """Answer requests, one after the other, until `keeper` is gone or nobody asked for `idle` seconds."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(before)
    try:
        listening.listen()
        listening.settimeout(idle)
        threading.Thread(target=_end_with, args=(keeper, path), daemon=True).start()
        from fedquilt.federation.site.dispatch import Answering

        answering = Answering()
        with contextlib.suppress(TimeoutError):
            while True:
                line, _ = listening.accept()
                with line, contextlib.suppress(OSError, ValueError, EOFError):
                    line.settimeout(None)
                    header, body = _receive(line)
                    with _awaited(line, path):
                        reply = answering.reply(header.pop("site"), header, body)
                    _send(line, *reply)
    finally:
        path.unlink(missing_ok=True)
        listening.close()


@contextlib.contextmanager
def _awaited(line: socket.socket, path: Path) -> Iterator[None]:
    """For the time of a request: end this process when the one that asked is gone. What the site keeps is whole at any time."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(WATCH_SECONDS):
            if _closed(line):
                path.unlink(missing_ok=True)
                os._exit(1)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()  # so that one who has its answer, and leaves, is not taken for one who gave up


def _closed(line: socket.socket) -> bool:
    """Whether the other end of a line, which has nothing more to say, is closed."""
    try:
        return not line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _end_with(keeper: int, path: Path) -> None:
    """End this process soon after another."""
    while _exists(keeper):
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
