"""`fedquilt demo`: a comparison that shows what personalised federated learning is for, in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import results, say
from fedquilt.cli.errors import resumable
from fedquilt.cli.progress import watching

METHODS = ("majority", "local", "fedavg", "fedpub", "quilt")
# Every method runs with its defaults but for this: sharper than the paper's 3, at which all clients' models grow alike and a
# picture shows nothing. It costs FED-PUB a point (validation 70.6 at 3, 69.3 at 10, three seeds).
TAU = 10.0
STORY = (
    "The same words mean different things in the three families of clients. Alone, a client has few",
    "labels (local); one model for all must serve three families at once (fedavg); FED-PUB lets clients",
    f"that resemble each other learn from each other (fedpub, with tau={TAU:g}); Quilt averages each weight over",
    "those who have seen what it is about, and every client keeps its own view of its graph (quilt).",
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
    from fedquilt.api import compare_to_folder
    from fedquilt.reports.read_run import read_run
    from fedquilt.reports.run_figures import draw_similarity
    from fedquilt.reports.tables import comparison_table

    values: dict[str, Any] = {
        "dataset": "patchwork",
        "partition": "natural",  # a client is a community
        "seeds": o.whole_numbers("seeds", seeds),
        "settings": {"tau": TAU},
    }
    if rounds is not None:
        values["rounds"] = rounds
    made: list[Path] = []
    with resumable(made), watching(quiet) as watch:
        folder, table = compare_to_folder(
            METHODS, values, out, watch, new_folder=(Path("."), "demo"), on_folder=made.append
        )
    heat = draw_similarity(read_run(folder / "fedpub"), folder)
    results().print(comparison_table(table))
    for line in STORY:
        say(line)
    say("")
    for path, what in [
        (folder / "convergence.png", "how each method gets better over the rounds"),
        *((path, "which clients FED-PUB found alike; lines part the families") for path in heat[:1]),
        (folder / "comparison.md", "the table"),
    ]:
        say(f"  {path}  {what}")
    say("")
    say("Next:")
    say(f"  fedquilt show {folder / 'fedpub'}")
    say("  fedquilt compare --methods local,fedavg,fedpub,quilt --dataset cora --clients 10 --seeds 0,1,2")
    say("  fedquilt methods quilt")
