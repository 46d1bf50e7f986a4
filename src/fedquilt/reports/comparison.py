"""The two files of a finished comparison: comparison.md with table and verdict, and convergence.png."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedquilt.common.files import write_text
from fedquilt.reports.read_run import StoredRun, read_run
from fedquilt.reports.run_figures import draw_convergence
from fedquilt.reports.tables import comparison_table, to_markdown
from fedquilt.reports.verdict import Compared, verdict
from fedquilt.runs.comparison_folder import COMPARISON, failed_in, runs_of
from fedquilt.runs.failed_method import FAILED
from fedquilt.runs.folder import RunFolder

TABLE, FIGURE = "comparison.md", "convergence.png"


def write_comparison(folder: Path, results: Sequence[dict[str, Any]]) -> None:
    """Write the table of the runs' `results` with the verdict, and the figure of their validation and test metrics by round."""
    failed = {str(result["method"]) for result in results if result.get(FAILED)}
    runs = [run for place in runs_of(folder) if (run := read_run(place)).method not in failed]
    sentences = "".join(f"\n{sentence}\n" for sentence in verdict_of(runs))
    write_text(folder / TABLE, to_markdown(comparison_table(results)) + sentences)
    if any(run.evaluated for run in runs):
        draw_convergence(runs, folder / FIGURE)


def comparison_verdict(folder: Path) -> list[str]:
    """The verdict on the finished runs in a comparison's folder."""
    failed = failed_in(folder)
    return verdict_of([run for place in runs_of(folder) if (run := read_run(place)).method not in failed])


def verdict_of(runs: Sequence[StoredRun]) -> list[str]:
    """The verdict on runs of different methods on the same clients and splits; none where they are not.

    None either while one of them still trains: its numbers are of other rounds than the others'.
    """
    if any(not seed.done for run in runs for seed in run.seeds) or len({run.method for run in runs}) < len(runs):
        return []
    parents = {run.folder.parent for run in runs}
    together = len(parents) == 1 and (next(iter(parents)) / COMPARISON).is_file()
    if not together and not _same_ground(runs):
        return []
    known = [(run, result) for run in runs if (result := run.result) is not None]
    return verdict(
        [
            Compared(result, {seed.seed: (seed.summary or {}).get("clients_test", []) for seed in run.seeds})
            for run, result in known
        ]
    )


def _same_ground(runs: Sequence[StoredRun]) -> bool:
    """Whether runs of different folders have the same graph, and in every seed the same clients and split, by their seals."""
    seals = [RunFolder(run.folder).seal for run in runs]
    known = [seal for seal in seals if seal is not None]
    first = known[0] if known else None
    return (
        first is not None
        and len(known) == len(runs)
        and all(seal["graph"] == first["graph"] and seal["cuts"] == first["cuts"] for seal in known)
    )
