"""`fedquilt study scoreboard`: from the committed reports, and from nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

REPORTS = Path(__file__).parents[2] / "docs" / "results"


def test_an_empty_folder_is_one_sentence(refused: Callable, here: Path) -> None:
    assert refused("study scoreboard --into nothing").startswith("There are no results in nothing: no finished cells")


@pytest.mark.long
def test_the_reports_in_the_docs_make_a_page(call: Callable, here: Path) -> None:
    called = call(f"study scoreboard --into {REPORTS / 'studies'} -o made")
    assert called.status == 0, called.err
    page = (here / "made" / "index.md").read_text(encoding="utf-8")
    assert "| FedSSA, Table 1 | 234 | 65 | 6 | 7 | 156 |" in page
    assert "## Ranks" in page
