"""When and on what a run was trained."""

from __future__ import annotations

from pathlib import Path

import torch

from fedquilt.runs.machine import MACHINE, note_machine, read_machine


def test_what_is_noted_is_read_and_older_runs_have_a_date(tmp_path: Path) -> None:
    assert read_machine(tmp_path) == {}
    (tmp_path / "result.json").write_text("{}")
    assert list(read_machine(tmp_path)) == ["date"]
    note_machine(tmp_path, torch.device("cpu"))
    facts = read_machine(tmp_path)
    assert {"date", "cpu", "cpus", "threads", "python", "platform"} == set(facts)
    assert facts["cpus"] >= 1
    (tmp_path / MACHINE).write_text("[")
    assert list(read_machine(tmp_path)) == ["date"]
