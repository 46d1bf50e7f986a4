"""The files of a finished comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedquilt
from fedquilt.reports.comparison import FIGURE, TABLE, write_comparison
from support.small_runs import SMALL

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_the_table_and_the_figure_are_written_again_from_the_folder(tmp_path: Path) -> None:
    runs = fedquilt.compare(["majority", "local"], out="out", **SMALL)
    table = (tmp_path / "out" / TABLE).read_text()
    assert all(f"{run.result['test_mean']:.2f}" in table for run in runs)
    for name in (TABLE, FIGURE):
        (tmp_path / "out" / name).unlink()
    write_comparison(tmp_path / "out", [run.result for run in runs])
    assert (tmp_path / "out" / TABLE).read_text() == table
    assert (tmp_path / "out" / FIGURE).read_bytes().startswith(b"\x89PNG")
