"""The two files of a finished comparison: comparison.md with the table, and convergence.png."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedquilt.common.files import write_text
from fedquilt.reports.read_run import read_run
from fedquilt.reports.run_figures import draw_convergence
from fedquilt.reports.tables import comparison_table, to_markdown
from fedquilt.runs.comparison_folder import runs_of

TABLE, FIGURE = "comparison.md", "convergence.png"


def write_comparison(folder: Path, results: Sequence[dict[str, Any]]) -> None:
    """Write the table of the runs' `results`, and the figure of their validation and test metrics by round."""
    write_text(folder / TABLE, to_markdown(comparison_table(results)))
    draw_convergence([read_run(run) for run in runs_of(folder)], folder / FIGURE)
