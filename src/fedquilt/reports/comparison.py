"""The two files of a finished comparison: comparison.md with table and verdict, and convergence.png."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedquilt.common.files import write_text
from fedquilt.reports.read_run import read_run
from fedquilt.reports.run_figures import draw_convergence
from fedquilt.reports.stored_verdict import verdict_of
from fedquilt.reports.tables import comparison_table, to_markdown
from fedquilt.runs.comparison_folder import runs_of
from fedquilt.runs.failed_method import FAILED

TABLE, FIGURE = "comparison.md", "convergence.png"


def write_comparison(folder: Path, results: Sequence[dict[str, Any]]) -> None:
    """Write the table of the runs' `results` with the verdict, and the figure of their validation and test metrics by round."""
    failed = {str(result["method"]) for result in results if result.get(FAILED)}
    runs = [run for place in runs_of(folder) if (run := read_run(place)).method not in failed]
    sentences = "".join(f"\n{sentence}\n" for sentence in verdict_of(runs))
    write_text(folder / TABLE, to_markdown(comparison_table(results)) + sentences)
    if any(run.evaluated for run in runs):
        draw_convergence(runs, folder / FIGURE)
