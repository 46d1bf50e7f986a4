"""docs/newcomers.md: its Python runs, and its tables have what the methods say of themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedquilt.methods.base import methods

PAGE = (Path(__file__).parents[2] / "docs" / "newcomers.md").read_text(encoding="utf-8")
(CODE,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.usefixtures("elsewhere")
def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    session: dict = {}
    exec(CODE, session)
    assert session["admitted"].epochs == 11
    assert session["again"].epochs == 21
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("name", methods())
def test_every_method_says_there_what_it_gives(name: str) -> None:
    assert f"| `{name}` | {methods()[name].newcomers} |" in PAGE
