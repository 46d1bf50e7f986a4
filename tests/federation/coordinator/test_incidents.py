"""Incidents are lines of a file, and a site cannot forge any."""

from __future__ import annotations

import json
from pathlib import Path

from fedquilt.federation.coordinator.incidents import Incidents


def test_an_incident_is_a_line(tmp_path: Path) -> None:
    incidents = Incidents(tmp_path / "run" / "incidents.jsonl")
    incidents.add(3, "site-1", "absent", "Round 3: it gave no answer.")
    incidents.add(None, None, "hello", "It says: x\n\x1b[2K\ud800fedquilt: done")
    lines = [json.loads(line) for line in (tmp_path / "run" / "incidents.jsonl").read_text().splitlines()]
    assert lines == incidents.all
    assert (lines[0]["round"], lines[0]["site"], lines[0]["what"]) == (3, "site-1", "absent")
    assert lines[1]["reason"] == "It says: x\\u000a\\u001b[2K\\ud800fedquilt: done"


def test_without_a_file_incidents_are_kept_in_memory() -> None:
    incidents = Incidents()
    incidents.add(0, "a", "upload", "It is bad.")
    assert [line["what"] for line in incidents.all] == ["upload"]
