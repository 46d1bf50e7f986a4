"""`fedquilt study scoreboard`: all studies on one page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import aside, say
from fedquilt.cli.study_exchange import INTO


def scoreboard(
    into: Annotated[
        list[Path] | None,
        typer.Option(
            "--into", file_okay=False, help="A folder with cells or reports; may be repeated. Default: studies."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", file_okay=False, help="The folder to write index.md and its figures to.")
    ] = Path("scoreboard"),
) -> None:
    """All studies on one page: printed numbers reached, ranks, cost beside gain, and which of the papers' claims show.

    It is made from finished cells and from reports; of a study that has both, what has more numbers counts.
    """
    from fedquilt.common.writable import check_folder_writable
    from fedquilt.studies.scoreboard.page import scoreboard_of, write_scoreboard
    from fedquilt.studies.scoreboard.results import read_results

    check_folder_writable(out)
    folders = into or [INTO]
    results, warnings = read_results(folders)
    for sentence in warnings:
        aside(sentence)
    places = " ".join(f"--into {shlex.quote(str(one))}" for one in folders)
    command = f"fedquilt study scoreboard {places} --out {shlex.quote(str(out))}"
    for path in write_scoreboard(scoreboard_of(results), out, command):
        say(str(path))
