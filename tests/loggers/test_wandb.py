"""What W&B's own file holds of what was written, read record by record."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("wandb", reason="needs pip install 'fedquilt[wandb]'")
from wandb.proto import wandb_internal_pb2 as pb

import fedquilt
from support.loggers import LONG, STOPS, Series, expected, logs, stopped_and_resumed, untimed


@pytest.fixture(autouse=True)
def alone(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_X_DISABLE_STATS", "true")  # measuring the machine takes longer than the tests


def the_only() -> Path:
    (path,) = (logs() / "wandb").glob("offline-run-*/run-*.wandb")
    return path


def records() -> list[pb.Record]:
    """All of them, once W&B's own process has written the last: it goes on for a moment after the run is finished."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = list(written())
        if any(record.WhichOneof("record_type") == "exit" for record in found):
            return found
        time.sleep(0.05)
    raise AssertionError("W&B did not write the end of the run")


def written() -> Iterator[pb.Record]:
    """LevelDB's log format: blocks of 32 KiB; a piece has a checksum, a length, and whether it is whole, first, ..., last."""
    data, place, whole = the_only().read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        if place + 7 + length > len(data):
            return
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            record = pb.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def named(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def rows() -> list[dict[str, Any]]:
    return [named(record.history.item) for record in records() if record.WhichOneof("record_type") == "history"]


def series() -> Series:
    out: Series = {}
    for row in rows():
        for tag, value in row.items():
            if not tag.startswith(("_", "clients/test")):
                out.setdefault(tag, []).append((row["_step"], value))
    return out


def test_all_rounds_are_there() -> None:
    run = fedquilt.run("fedpub", out="out", log="wandb", **LONG)
    assert series() == expected(run.records[3])
    measured = {r["round"]: r["clients"]["test"] for r in run.records[3] if "clients" in r}
    counts = {row["_step"]: row["clients/test/values"] for row in rows() if "clients/test/values" in row}
    assert {step: sum(values) for step, values in counts.items()} == {r: len(tests) for r, tests in measured.items()}
    summary: dict[str, Any] = {}
    for record in records():
        if record.WhichOneof("record_type") == "summary":
            summary |= named(record.summary.update)
    line = run.result["seeds"][0]
    assert [summary[f"best/{name}"] for name in ("val", "test", "round")] == [
        line["val"],
        line["test"],
        line["best_round"],
    ]
    (start,) = [record.run for record in records() if record.WhichOneof("record_type") == "run"]
    assert start.project == "fedquilt"
    assert start.display_name == "fedpub-patchwork-disjoint-3 seed 3"
    config = named(start.config.update)
    assert config["method"] == "fedpub"
    assert config["settings/hidden"] == 8
    (end,) = [record.exit for record in records() if record.WhichOneof("record_type") == "exit"]
    assert end.exit_code == 0
    assert json.loads((logs() / "loggers.json").read_text()) == {"wandb": {"3": {"id": start.run_id, "finished": True}}}


@pytest.mark.parametrize(("round", "save_every"), STOPS)
def test_stopped_and_resumed_is_the_same_as_whole(round: int, save_every: float) -> None:
    names = []

    def look() -> None:
        names.append(the_only().name)
        assert [step for step, _ in series()["seconds"]] == list(range(round + 1))

    resumed = stopped_and_resumed("wandb", round, save_every, look)
    assert the_only().name == names[0]  # the same W&B run
    assert series() == expected(resumed.records[3])
    assert untimed(series()).keys() == untimed(expected(resumed.records[3])).keys()


def test_nothing_is_said_and_nothing_is_written_elsewhere(capfd: pytest.CaptureFixture[str]) -> None:
    fedquilt.run("majority", out="out", clients=3, log="wandb")
    assert capfd.readouterr() == ("", "")
    assert sorted(path.name for path in Path().iterdir()) == ["out"]


def test_the_users_mode_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    fedquilt.run("majority", out="out", clients=3, log="wandb")
    assert not list(logs().rglob("*.wandb"))
