"""A small run, its outcome, and a way to interrupt it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import fedquilt
from fedquilt.training.round import RoundRunner
from fedquilt.training.round_result import RoundOutput

SMALL = "--clients 3 --rounds 3 --set hidden=8 --device cpu"


def without_seconds(value: object) -> object:
    """Records or results, but for the time they took."""
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if not k.startswith("seconds") and k != "timings"}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value


def outcome(folder: Path) -> list[object]:
    """All that a run found out: the rounds of each seed, and the result."""
    files = sorted(folder.glob("seed-*/metrics.jsonl"))
    rounds = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    return [without_seconds(rounds), without_seconds(json.loads((folder / "result.json").read_text()))]


def interrupt_at(monkeypatch: pytest.MonkeyPatch, round: int, method: str = "fedpub") -> None:
    """Press Ctrl-C when that round begins."""
    whole = RoundRunner.run

    def interrupted(self: RoundRunner, number: int) -> RoundOutput:
        if number == round and self.method.name == method:
            raise KeyboardInterrupt
        return whole(self, number)

    monkeypatch.setattr(RoundRunner, "run", interrupted)


def environment() -> dict[str, str]:
    """For a process of its own in any folder: the package that is being tested, wherever that is."""
    return os.environ | {"PYTHONPATH": str(Path(fedquilt.__file__).resolve().parents[1])}
