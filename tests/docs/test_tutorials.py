"""The scripts of examples/ run, are on a page as they are, and print what the page says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedquilt.methods import base
from support.pages import ROOT, hook

tutorials = hook("tutorials")
SHOWN = [each for page in tutorials.pages() for each in tutorials.shown(page)]
NEEDS_DATA = {"compare.py": "patchwork"}  # scripts on a graph that is downloaded, and what they train on without it


@pytest.fixture
def registered() -> Iterator[None]:
    """Forget the methods that a script registers."""
    before = set(base.methods())
    yield
    for name in set(base.methods()) - before:
        base.METHODS.remove(name)


def test_every_script_is_on_a_page() -> None:
    assert {each.script.name for each in SHOWN} == {path.name for path in (ROOT / "examples").glob("*.py")}


@pytest.mark.parametrize("each", SHOWN, ids=lambda each: each.script.name)
def test_the_script_runs_and_prints_what_its_page_says(each, tmp_path: Path, registered: None) -> None:
    assert each.code == each.script.read_text(encoding="utf-8"), "run 'make tutorials'"
    without = NEEDS_DATA.get(each.script.name)
    if without is not None and not (Path(os.environ.get("FEDQUILT_DATA", "")) / "cora.npz").exists():
        assert without in tutorials.run_script(each.script, tmp_path, without)
        return
    output = tutorials.run_script(each.script, tmp_path)
    assert tutorials.same_output(each.output, output), (
        f"the page is out of date ('make tutorials'); it prints:\n{output}"
    )


def test_outputs_are_the_same_only_up_to_rounding() -> None:
    assert tutorials.same_output("accuracy 53.08 ± 4.81", "accuracy 53.5 ± 4.4")
    assert not tutorials.same_output("accuracy 53.08", "accuracy 60.00")
    assert not tutorials.same_output("accuracy 53.08", "auc 53.08")
    assert not tutorials.same_output("one 1 two 2", "one 1 two")
    assert tutorials.same_output("| 9.9 | a |", "|  10.1 |  a |")


def test_a_page_is_written_anew_from_its_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tutorials, "ROOT", tmp_path)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "sum.py").write_text("print(1 + 1)\n")
    page = tmp_path / "page.md"
    page.write_text("<!-- examples/sum.py -->\n```python\n```\nThen:\n<!-- prints -->\n```text\n```\n")
    assert tutorials.rewrite(page)
    assert "```python\nprint(1 + 1)\n```\nThen:\n<!-- prints -->\n```text\n2\n```\n" in page.read_text()
    assert not tutorials.rewrite(page)


def test_the_rows_of_the_page_are_rows_of_the_tables() -> None:
    text = (ROOT / "docs" / "tutorials" / "own-csv.md").read_text(encoding="utf-8")
    shown = [line.strip() for line in text.splitlines() if re.match(r"^    (\S+;|\w+: \w+$)", line)]
    files = [
        (ROOT / "examples" / "patients" / name).read_text(encoding="latin-1")
        for name in ("nodes.csv", "edges.csv", "graph.yaml")
    ]
    there = {line for text in files for line in text.splitlines()}
    assert len(shown) > 8
    assert set(shown) <= there
