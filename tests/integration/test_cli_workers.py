"""`--workers`: real processes on a Ray of their own, which leave nothing running."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from support.cli import environment

pytest.importorskip("ray")

LINE = "run -m fedavg --clients 3 --rounds 60 --set hidden=8 --device cpu --checkpoint-every 0 --json -q"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--workers 0", "The option workers=0 is not possible"),
        ("--workers 4", "4 workers cannot share 3 clients; use --workers 3 or fewer."),
        (
            "-m fedsheafhn --workers 3 --hold-out-clients 0.4",
            "3 workers cannot share 2 clients; use --workers 2 or fewer.",
        ),
        ("--workers two", "Invalid value for '--workers'"),
    ],
)
def test_wrong_numbers_of_workers(refused: Callable, options: str, says: str) -> None:
    assert says in refused(f"run --clients 3 --rounds 2 {options}")


@pytest.mark.parametrize("command", ["run -m local", "compare -m local,fedavg"])
def test_without_ray_it_is_said_how_to_install_it(
    refused: Callable, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for module in ("ray_workers", "ray_cluster"):
        monkeypatch.delitem(sys.modules, f"fedquilt.training.engines.{module}", raising=False)
    said = refused(f"{command} --clients 3 --rounds 2 --workers 2")
    assert said == "Workers need the package ray; install it with: pip install 'fedquilt[ray]'."


@pytest.fixture
def ray_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where Ray puts its sockets: short, and where no other Ray of this machine is found."""
    with tempfile.TemporaryDirectory(prefix="fq", dir="/tmp", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        yield folder


def left_running(folder: str) -> list[str]:
    """Processes of the Ray in that folder, a few seconds after it was told to end."""
    for _ in range(50):
        lines = [" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])]
        mine = [line for line in lines if folder in line]
        if not mine:
            break
        time.sleep(0.2)
    return mine


@pytest.mark.e2e
def test_stopped_and_resumed_on_workers_equals_in_process(call: Callable, here: Path, ray_folder: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "fedquilt.cli", *LINE.split(), "--workers", "2", "--out", "stopped"],
        env=environment(),
        # Where the tests run in the background of a shell, Ctrl-C is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = here / "stopped" / "seed-0" / "metrics.jsonl"
    began = time.monotonic()
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") > 3):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - began < 120
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert (out, err) == ("", "fedquilt: stopped; continue with 'fedquilt resume stopped'.\n")
    assert left_running(ray_folder) == []
    assert json.loads((here / "stopped" / "config.json").read_text())["workers"] == 2
    resumed = subprocess.run(
        [sys.executable, "-m", "fedquilt.cli", "resume", "stopped", "--json", "-q"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert left_running(ray_folder) == []
    result = json.loads(resumed.stdout)
    alone = json.loads(call(f"{LINE} --out alone").out)
    assert result["test_mean"] == pytest.approx(alone["test_mean"], abs=1e-5)
    assert figures(here / "stopped") == pytest.approx(figures(here / "alone"), abs=1e-5)


def figures(folder: Path) -> list[float]:
    """Losses and metrics of all rounds."""
    rounds = map(json.loads, (folder / "seed-0" / "metrics.jsonl").read_text().splitlines())
    return [r[name] for r in rounds for name in ("train_loss", "val_loss", "val", "test")]
