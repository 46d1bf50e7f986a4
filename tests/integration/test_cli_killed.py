"""A real process, really killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from support.cli import environment


def test_a_killed_run_resumes_to_the_same_numbers(call: Callable, here: Path) -> None:
    line = "run -m fedpub --clients 3 --rounds 60 --set hidden=8 --device cpu --checkpoint-every 0 -q"
    process = subprocess.Popen(
        [sys.executable, "-m", "fedquilt.cli", *line.split(), "--out", "killed"], env=environment()
    )
    metrics = here / "killed" / "seed-0" / "metrics.jsonl"
    began = time.monotonic()
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") > 10):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() - began < 60
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (here / "killed" / "result.json").exists()
    shown = call("show killed")
    assert shown.status == 0
    assert "Seed 0 is not done" in shown.out
    assert call("resume killed -q").status == 0
    assert call(f"{line} --out whole").status == 0
    assert figures(here / "killed") == figures(here / "whole")


def figures(folder: Path) -> list[tuple[float, float, list[float]]]:
    """Validation and test of each round, mean and by client."""
    lines = (folder / "seed-0" / "metrics.jsonl").read_text().splitlines()
    return [(r["val"], r["test"], r["clients"]) for r in map(json.loads, lines)]
