"""The site's own log: readable, of one line an event, and of limited size."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.federation.site import log as module
from fedquilt.federation.site.log import SiteLog


def test_events_are_lines_and_incidents_can_be_counted(tmp_path: Path) -> None:
    log = SiteLog(tmp_path / "state")
    assert log.incidents() == []
    log.note("Hello.")
    log.incident("refused", "It does not fit.", "0123abcd", 4)
    log.incident("quota", "Too many.")
    said = [line.split(" ", 1)[1] for line in (tmp_path / "state" / "site.log").read_text().splitlines()]
    assert said == ["Hello.", "INCIDENT refused (run 0123abcd, round 4): It does not fit.", "INCIDENT quota: Too many."]
    first, second = log.incidents()
    assert (first["what"], first["run"], first["round"], first["reason"]) == (
        "refused",
        "0123abcd",
        4,
        "It does not fit.",
    )
    assert second["run"] is None
    for path in (tmp_path / "state").iterdir():
        assert path.stat().st_mode & 0o077 == 0 or path.name.endswith(".lock")
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


def test_a_coordinator_cannot_forge_a_line_or_write_a_book(tmp_path: Path) -> None:
    SiteLog(tmp_path).incident("refused", "a\nb\x1b[2Jc\x00" + "x" * 10**6)
    (line,) = (tmp_path / "site.log").read_text().splitlines()
    assert r"a\u000ab\u001b[2Jc\u0000xxx" in line
    assert len(line) < 600


def test_it_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 2000)
    log = SiteLog(tmp_path)
    for number in range(200):
        log.incident("refused", f"Number {number}.")
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert sorted(sizes) == ["incidents.jsonl", "incidents.jsonl.1", "site.log", "site.log.1"]
    assert max(sizes.values()) <= 2000
    numbers = [int(line["reason"].split()[1].rstrip(".")) for line in log.incidents()]
    assert numbers == list(range(numbers[0], 200))
    assert len(numbers) > 10


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    SiteLog(tmp_path / "file").incident("failed", "The disk is full.")
    (tmp_path / "incidents.jsonl").write_text("torn {\n{}\n")
    assert [line["what"] for line in SiteLog(tmp_path).incidents()] == ["damaged"]
