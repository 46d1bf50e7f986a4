"""`python -m fuzz` as it is called: it attacks, prints a table with the seed, and writes down what was tried."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.cli import environment

ROOT = Path(__file__).parents[2]


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: it forks, which a process that has trained cannot."""
    return subprocess.run(
        [sys.executable, "-m", "fuzz", *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_short_campaign_finds_nothing(tmp_path: Path) -> None:
    done = fuzz("--only", "inputs,requests", "--attempts", "3", "--seed", "19", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 19" in done.stdout
    assert "| inputs | 3 | 0 |" in done.stdout
    record = json.loads((tmp_path / "campaigns.jsonl").read_text())
    assert (record["seed"], record["kinds"]["requests"]["attempts"]) == (19, 3)


def test_an_unknown_kind_is_named() -> None:
    done = fuzz("--only", "sunshine")
    assert done.returncode == 2
    assert "there is no kind sunshine" in done.stderr
