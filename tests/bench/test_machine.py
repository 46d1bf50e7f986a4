from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch

import fedquilt
from fedquilt.bench.machine import about, commit, device_name

CPU = torch.device("cpu")


def test_all_that_decides_whether_results_compare_is_there() -> None:
    facts = about(CPU, 3)
    assert json.loads(json.dumps(facts)) == facts
    assert (facts["device"], facts["threads"], facts["fedquilt"]) == ("cpu", 3, fedquilt.__version__)
    assert set(facts) >= {"date", "commit", "torch", "python", "platform", "cpu_count", "device_name"}
    assert device_name(CPU)


def test_a_copy_inside_somebody_elses_repository_has_no_commit(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "__init__.py").touch()
    assert commit(tmp_path) is None


def test_without_git_there_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit() is None


def test_changed_code_is_said_to_be(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True)

    file = tmp_path / "__init__.py"
    file.touch()
    for arguments in (("init",), ("add", "."), ("commit", "-m", "first")):
        git(*arguments)
    clean = commit(tmp_path)
    file.write_text("changed")
    assert clean is not None
    assert commit(tmp_path) == f"{clean}-changed"
