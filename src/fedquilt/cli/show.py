"""`fedquilt show`: the table and the figures of a run or a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import results, say
from fedquilt.cli.targets import PICTURES
from fedquilt.errors import unknown


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
    client: Annotated[
        str | None,
        typer.Option(
            "--client", "-k", metavar="K", help="Whose classes to show, by number or name. Default: all clients'."
        ),
    ] = None,
    kinds: Annotated[
        str, typer.Option("--format", metavar="KIND,...", help="What to draw figures as: png, pdf, svg, or several.")
    ] = "png",
) -> None:
    """Print a run's table, all metrics, recall and precision by class, confusion matrix; draw figures into DIR/figures."""
    from fedquilt.reports.show import draw_overview, read_overview

    suffixes = _suffixes(kinds)
    overview = read_overview(folder, against, client)
    for table in (overview.table, *overview.more):
        results().print(table)
    for note in overview.notes:
        say(note)
    for suffix in suffixes:
        for line in draw_overview(overview, suffix):
            say(line)


def _suffixes(kinds: str) -> list[str]:
    """Convert "png,pdf" to .png and .pdf; raise an error for a format that cannot be drawn."""
    suffixes = [f".{kind.strip().lower()}" for kind in kinds.split(",")]
    for suffix in suffixes:
        if suffix not in PICTURES:
            raise unknown("format", suffix.removeprefix("."), [kind.removeprefix(".") for kind in PICTURES])
    return suffixes
