"""`fedquilt demo`: a comparison that shows what personalised federated learning is for, in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import results, say
from fedquilt.cli.errors import resumable
from fedquilt.cli.progress import watching

STORY = (
    "The same words mean different things in the three families of clients. Alone, a client has few",
    "labels (local); one model for all must serve three families at once (fedavg); FED-PUB lets clients",
    "that resemble each other learn from each other (fedpub, with tau=10 contrast=centred); Quilt averages",
    "each weight over those who have seen what it is about, and every client keeps its own view of its",
    "graph (quilt).",
    "majority is the floor: it learns nothing and answers each client's most common class. The graph was",
    "made for this picture: it shows how the methods work, not which is best.",
)


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The folder to write; it must be new. Default: demo, demo-2, ....",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", "-s", help="One training a seed, such as 0,1,2.")] = "0,1,2",
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            "-r",
            help="Communication rounds. Default: 100.",
        ),
    ] = None,
    quiet: o.Quiet = False,
) -> None:
    """Compare five methods on patchwork, a small graph that is built in: ten clients of three families."""
    numbers = o.whole_numbers("seeds", seeds)
    from fedquilt import api
    from fedquilt.reports.tables import comparison_table

    made: list[Path] = []
    with resumable(made), watching(quiet) as watch:
        folder, table, similarity = api.demo(out, numbers, rounds, watch, made.append)
    results().print(comparison_table(table))
    for line in STORY:
        say(line)
    say("")
    for path, what in [
        (folder / "convergence.png", "how each method gets better over the rounds"),
        *((path, "which clients FED-PUB found alike; lines part the families") for path in similarity[:1]),
        (folder / "comparison.md", "the table"),
    ]:
        say(f"  {path}  {what}")
    say("")
    say("Next:")
    say(f"  fedquilt show {folder / 'fedpub'}")
    say("  fedquilt compare --methods local,fedavg,fedpub,quilt --dataset cora --clients 10 --seeds 0,1,2")
    say("  fedquilt methods quilt")
