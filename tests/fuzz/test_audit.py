"""An audit that asked nobody is not one that found nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.audit import FINE, FOUND, NOT_AUDITED, main, report

VULNERABLE = {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
CLEAN = {"name": "b", "version": "1", "vulns": []}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited"}


@pytest.mark.parametrize(
    ("packages", "status"),
    [
        ([VULNERABLE, CLEAN, SKIPPED], FOUND),
        ([CLEAN, SKIPPED], FINE),
        ([SKIPPED], NOT_AUDITED),
        ([], NOT_AUDITED),
    ],
)
def test_the_status_says_whether_anything_was_asked(packages: list[dict], status: int) -> None:
    assert report(packages) == status


def test_a_tool_that_fails_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = tmp_path / "pip-audit"
    tool.write_text("#!/bin/sh\necho 'no route to host' >&2\nexit 1\n")
    tool.chmod(0o755)
    assert main([str(tool), "constraints.txt"]) == NOT_AUDITED
    assert "Nothing was audited" in capsys.readouterr().err
