"""docs/python.md: its examples, one after the other in one session."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedquilt

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.usefixtures("elsewhere")
def test_the_examples_run_and_print_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    session: dict = {}
    for number, block in enumerate(blocks(PAGE)):
        exec(compile(block, f"docs/python.md, example {number}", "exec"), session)
    said = capsys.readouterr().out
    assert "<Run quilt on patchwork, 5 clients: test accuracy " in said
    assert "'lr' is a setting of the method fedavg, not an option of the run; give it as settings={'lr': 0.02}" in said
    assert "\nvalidation reached 40.0\n" in said
    assert session["run"].stopped == "validation reached 40.0"
    assert session["whole"].stopped is None
    assert len(session["whole"].records[0]) == 50
    assert list(session["both"].table.index) == ["local", "fedavg"]
    assert Path("run.png").exists()


def test_the_table_has_every_public_name() -> None:
    listed = re.findall(r"`(\w+)", "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)))
    assert {*listed, "Run", "ComparedRuns", "Graph"} >= set(fedquilt.__all__)
