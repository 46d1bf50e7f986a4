"""The site.yaml files of a rehearsal; tests/cli/test_rehearse.py has whole rehearsals."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.local.rehearse import site_files


def test_files_are_listed_or_found_by_a_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "site.yaml").touch()
    assert site_files("*/site.yaml") == [Path("a/site.yaml"), Path("b/site.yaml")]
    assert site_files("b/site.yaml, a/site.yaml") == [Path("b/site.yaml"), Path("a/site.yaml")]
    for text, says in (
        ("a/site.yaml,", "--sites has an empty name in it"),
        ("c/*.yaml", r"No file is called as in 'c/\*\.yaml'"),
        ("a", "a is a folder; name its site.yaml, such as a/site.yaml"),
    ):
        with pytest.raises(FedquiltError, match=says):
            site_files(text)
