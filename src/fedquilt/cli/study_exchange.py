"""`fedquilt study export` and `fedquilt study merge`: finished cells as one file, from and to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import aside, say

Into = Annotated[Path, typer.Option("--into", file_okay=False, help="The folder where cells and reports are kept.")]
INTO = Path("studies")


def export(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Studies or YAML files of your own; all cells of the folder by default."
        ),
    ] = None,
    into: Into = INTO,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", dir_okay=False, help="The file to write; by default cells.jsonl.gz.")
    ] = None,
    without_metrics: Annotated[
        bool,
        typer.Option(
            "--without-metrics", help="Only the results: tables can be made of them, and no curves by rounds."
        ),
    ] = False,
    data: o.Data = None,
) -> None:
    """Write the finished cells of studies to one file, which others can merge into theirs."""
    from fedquilt.common.read_limit import in_words
    from fedquilt.common.writable import check_folder_writable
    from fedquilt.errors import FedquiltError
    from fedquilt.studies.exchange import SUFFIX, export_cells
    from fedquilt.studies.plan import plan_study
    from fedquilt.studies.store import CellStore

    out = out or Path(f"cells{SUFFIX}")
    check_folder_writable(out.parent)
    stored = CellStore(into).by_identity()
    wanted = list(stored.values())
    if names:
        plans = [plan_study(name, data=None if data is None else str(data)) for name in names]
        wanted = [stored[cell.identity] for plan in plans for cell in plan.cells if cell.identity in stored]
    if not wanted:
        what = f"of {', '.join(names)} " if names else ""
        raise FedquiltError(f"Nothing {what}is done in {into}, so there is nothing to export.")
    count, left_out = export_cells(wanted, out, not without_metrics)
    if left_out:
        aside(f"The metrics of {len(left_out)} cells are too long for the file and were left out.")
    _tell_stale(len({cell.folder for cell in wanted if cell.stale}))
    say(f"{count} cells, {in_words(out.stat().st_size)}: {out}")


def merge(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files that [bold]fedquilt study export[/] wrote.")
    ],
    into: Into = INTO,
) -> None:
    """Take the cells of such files into a folder; a cell that has another result there is named, and stays as it is."""
    from fedquilt.studies.merge import merge_cells
    from fedquilt.studies.store import CellStore

    merged = merge_cells(files, CellStore(into))
    for clause in merged.differing:
        aside(f"Two results, the one in {into} was kept: {clause}.")
    for label in merged.running:
        aside(f"Left alone, as a process runs it here just now: {label}.")
    _tell_stale(merged.stale)
    completed = f" ({merged.completed} have their metrics now)" if merged.completed else ""
    others = len(merged.differing)
    say(f"{merged.new} new cells in {into}, {merged.known} known already{completed}, {others} with another result.")


def _tell_stale(count: int) -> None:
    """Say how many cells are stale, where some are."""
    if count:
        aside(f"{count} of these cells are stale: another version of the computation finished them.")
