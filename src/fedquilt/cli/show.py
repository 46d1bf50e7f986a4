"""`fedquilt show`: the table and the figures of a run or a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import results, say


def show(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A run's folder, finished or still running, or a comparison's."),
    ],
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="DIR",
            help="A second run of the same method to draw beside it, e.g. one with --set semantic=false.",
        ),
    ] = None,
    kinds: Annotated[
        str, typer.Option("--format", metavar="KIND,...", help="What to draw figures as: png, pdf, svg, or several.")
    ] = "png",
) -> None:
    """Print a run's table and draw its figures into DIR/figures."""
    from fedquilt.cli.findings import draw_findings, read_findings, read_pair
    from fedquilt.cli.pictures import draw_convergence, draw_run
    from fedquilt.cli.reading import is_comparison, read_run, runs_of
    from fedquilt.cli.targets import PICTURES
    from fedquilt.errors import FedquiltError, unknown
    from fedquilt.reports.tables import comparison_table, run_table

    suffixes = [f".{kind.strip().lower()}" for kind in kinds.split(",")]
    for suffix in suffixes:
        if suffix not in PICTURES:
            raise unknown("format", suffix.removeprefix("."), [kind.removeprefix(".") for kind in PICTURES])
    several = is_comparison(folder)
    runs = [read_run(path) for path in (runs_of(folder) if several else [folder])]
    table = [run.result for run in runs if run.result is not None]
    if not table:
        raise FedquiltError(
            f"No round in {folder} has been evaluated yet; try again later, or 'fedquilt resume {folder}'."
        )
    if several and against is not None:
        raise FedquiltError(f"{folder} holds several runs; --against goes with one of them.")
    found = read_findings(runs[0]) if against is None else read_pair(runs[0], read_run(against))
    results().print(comparison_table(table) if several else run_table(table[0]))
    for run in runs:
        for sentence in run.unfinished:
            say(f"{run.method}: {sentence}" if several else sentence)
    into = folder / "figures"
    for suffix in suffixes:
        if several:
            into.mkdir(exist_ok=True)
            paths = draw_convergence(runs, into / f"convergence{suffix}")
        else:
            paths = draw_run(runs[0], into, suffix) + draw_findings(found, into, suffix)
        for path in paths:
            say(str(path))
