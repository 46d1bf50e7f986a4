from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedquilt.cli import docs


def test_pages_are_listed_and_printed(call: Callable) -> None:
    called = call("docs")
    assert called.status == 0
    assert all(name in called.out for name in ("how-to/slurm", "tutorials/compare", "data", "results/quilt"))
    assert "reference" not in called.out
    assert call("docs slurm").out.startswith("# Use Slurm")
    assert call("docs docs/data.md").out.startswith("# Graphs")
    assert call("docs results/studies").status == 0


def test_an_unknown_page_is_refused(refused: Callable) -> None:
    assert "There is no page 'dta'; did you mean 'data'?" in refused("docs dta")


def test_an_installed_package_reads_its_own_pages(
    tmp_path: Path, call: Callable, refused: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "data.md").write_text("# Of the package\n")
    monkeypatch.setattr(docs, "PLACES", (tmp_path / "pages", tmp_path / "docs"))
    assert call("docs data").out == "# Of the package\n"
    monkeypatch.setattr(docs, "PLACES", (tmp_path / "docs",))
    assert "install fedquilt again" in refused("docs")
