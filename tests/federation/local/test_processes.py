"""Processes end with their group, with what they started, and with us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedquilt.federation.local.processes import ProcessGroup

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
# Starts another in a session of its own, and does not heed being asked to end.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("ready", flush=True)
time.sleep(600)
"""


def wait_for(group: ProcessGroup, name: str, text: str) -> None:
    until = time.monotonic() + 20
    while text not in group.output(name):
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("how", ["end", "kill", "error"])
def test_all_that_was_started_ends(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedquilt.federation.local.processes.TERMINATE_SECONDS", 0.3)
    group = ProcessGroup(tmp_path)
    try:
        with group:
            group.start("one", [sys.executable, "-c", STUBBORN], os.environ)
            wait_for(group, "one", "ready")
            assert len(group.started()) == len(group.started("one")) == 2
            if how == "kill":
                group.kill("one")
                assert group.started() == []
            if how == "error":
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert group.started() == []


def test_some_of_what_was_started_ends(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        group.start("one", [sys.executable, "-c", STUBBORN], os.environ)
        wait_for(group, "one", "ready")
        group.kill_started("one", "signal.SIGTERM")  # that is in its own command line, and not in the other's
        group.running["one"].wait(10)
        assert len(group.started("one")) == 1


def test_what_a_later_process_says_is_told_apart(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        assert group.output_size("one") == 0
        group.start("one", [sys.executable, "-c", "print('early')"], os.environ).wait()
        start = group.output_size("one")
        group.start("one", [sys.executable, "-c", "print('later')"], os.environ).wait()
        assert group.output("one") == "early\nlater\n"
        assert group.output("one", start=start) == "later\n"


def test_the_watchdog_takes_nothing_from_the_folder_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fedquilt").mkdir()
    (tmp_path / "fedquilt" / "__init__.py").write_text("open('taken', 'w')")
    monkeypatch.chdir(tmp_path)
    with ProcessGroup(tmp_path / "logs"):
        pass
    assert not (tmp_path / "taken").exists()


def test_a_process_dies_with_the_one_that_started_it(tmp_path: Path) -> None:
    script = f"""
import os, sys, time
from pathlib import Path
from fedquilt.federation.local.processes import ProcessGroup
group = ProcessGroup(Path({str(tmp_path)!r}))
group.start("one", [sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(600)"], os.environ)
while "ready" not in group.output("one"):
    time.sleep(0.02)
print(group.running["one"].pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until = time.monotonic() + 10
    while Path(f"/proc/{child}/stat").exists() and " Z " not in Path(f"/proc/{child}/stat").read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
