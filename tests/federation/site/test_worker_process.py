"""The worker process of a site: one for many requests; it ends with Flower's process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedquilt.federation.site import worker_process
from fedquilt.federation.site.examples import write_sites
from support.federations import ragged_clients

HELLO = {"kind": "hello", "version": 1}


def running(mark: str) -> list[int]:
    """Helpers that were started with this in their environment, those that ended not counted."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if (
                mark.encode() in (each / "environ").read_bytes()
                and b"federation.site.worker_process" in (each / "cmdline").read_bytes()
            ):
                found.append(int(each.name))
        except OSError:
            continue
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_one_process_answers_all_and_ends_with_its_supernode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = write_sites(tmp_path, ragged_clients((12,)))
    supernode = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    monkeypatch.setenv("FEDQUILT_WARM", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(worker_process, "_supernode_process", lambda: supernode.pid)
    monkeypatch.setattr(worker_process.tempfile, "tempdir", None)
    try:
        first = worker_process.ask(str(path), HELLO, b"")
        one = running(str(tmp_path))
        assert worker_process.ask(str(path), HELLO, b"") == first
        assert running(str(tmp_path)) == one
        assert len(one) == 1
        assert first[0]["name"] == "site-0"
        assert (tmp_path / f"fedquilt-{os.getuid()}").stat().st_mode & 0o777 == 0o700
    finally:
        supernode.kill()
        supernode.wait()
    until = time.monotonic() + 20
    while running(str(tmp_path)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not running(str(tmp_path))


@pytest.fixture
def supernode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """What stands for Flower's process at the site; sockets are in the test's folder."""
    monkeypatch.setenv("FEDQUILT_WARM", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(worker_process.tempfile, "tempdir", None)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        monkeypatch.setattr(worker_process, "_supernode_process", lambda: process.pid)
        yield process
        process.kill()


def ended(process: subprocess.Popen[Any], seconds: float = 20) -> bool:
    """Whether a process ends in time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


# A worker whose requests are never answered; it says when it has one.
ENDLESS = """
import sys, time
from pathlib import Path
from fedquilt.federation.site import request_handler, worker_process

class Endless:
    def reply(self, site, header, body):
        print("asked", flush=True)
        if header["kind"] == "hello":
            return {"name": site}, b""
        while True:
            time.sleep(0.01)

request_handler.RequestHandler = Endless
worker_process.serve(Path(sys.argv[1]), int(sys.argv[2]))
"""


def test_a_worker_ends_when_nobody_waits_for_its_answer(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    command = [sys.executable, "-c", ENDLESS, str(path), str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            for _ in range(2):  # those that have their answer may leave
                with wait_for_line(path) as line:
                    worker_process._send(line, {**HELLO, "site": "one"}, b"")
                    assert worker_process._receive(line) == ({"name": "one"}, b"")
                assert worker.stdout.readline() == "asked\n"
            with wait_for_line(path) as line:
                worker_process._send(line, {"kind": "round", "site": "one"}, b"")
                assert worker.stdout.readline() == "asked\n"
                assert not ended(worker, 3 * worker_process.WATCH_SECONDS)
            assert ended(worker)
            assert not path.exists()
        finally:
            worker.kill()


def wait_for_line(path: Path) -> socket.socket:
    until = time.monotonic() + 30
    while (line := worker_process._connect(path)) is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    return line


def test_sockets_that_nobody_listens_on_are_removed(tmp_path: Path) -> None:
    def bound(name: str) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.bind(str(tmp_path / name))
        return made

    with bound("dead.sock"), bound("young.sock"), bound("alive.sock") as alive:
        alive.listen()
        for name in ("dead.sock", "alive.sock"):
            os.utime(tmp_path / name, (1, 1))
        (tmp_path / "other").write_text("")
        worker_process._remove_dead_sockets(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["alive.sock", "other", "young.sock"]


def test_a_worker_takes_nothing_from_the_folder_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supernode: subprocess.Popen[bytes]
) -> None:
    (path,) = write_sites(tmp_path, ragged_clients((12,)))
    (tmp_path / "fedquilt").mkdir()
    (tmp_path / "fedquilt" / "__init__.py").write_text("open('taken', 'w')")
    monkeypatch.chdir(tmp_path)
    assert worker_process.ask(str(path), HELLO, b"")[0]["name"] == "site-0"
    assert not (tmp_path / "taken").exists()


def test_a_body_may_have_more_than_four_gibibytes() -> None:
    header = worker_process._LENGTHS.pack(10, 2**33)
    assert worker_process._LENGTHS.unpack(header) == (10, 2**33)


def test_without_a_worker_requests_are_answered_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = write_sites(tmp_path, ragged_clients((12,)))
    monkeypatch.setenv("FEDQUILT_WARM", "1")

    def lost(*_: Any, **__: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(worker_process.subprocess, "Popen", lost)
    assert worker_process.ask(str(path), HELLO, b"")[0]["name"] == "site-0"


def test_a_folder_that_others_can_enter_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process.tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / f"fedquilt-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"fedquilt-{os.getuid()}").chmod(0o777)
    with pytest.raises(OSError, match="not ours alone"):
        worker_process._socket_path("site", 1)
