"""`fedquilt demo`: what an owner with few labels gains by training with others, in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import results, say
from fedquilt.cli.errors import resumable
from fedquilt.cli.progress import watching

if TYPE_CHECKING:
    from fedquilt.reports.gains import Gains

SCENE = (
    "Ten clients each hold a graph of 140 nodes, with a label for about one node in twenty. The graph is built in",
    "and made up: three families of clients, in which the same words mean different things. Every method has its",
    "default settings, and trains once for each seed, which draws other labels.",
)
HONEST = (
    "± is the standard error over the seeds: with seven labels and 70 test nodes, one client's gain is uncertain, the",
    "mean over all is not. Methods differ from each other less than they differ from training alone. With more labels",
    "there is less to gain: try 'fedquilt compare --methods local,fedavg,quilt --dataset patchwork --partition natural'.",
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
    seeds: Annotated[str, typer.Option("--seeds", "-s", help="One training a seed, such as 0,1,2.")] = "0,1,2,3,4",
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
    """Show what clients with few labels gain by joining: six methods on patchwork, a small graph that is built in."""
    numbers = o.whole_numbers("seeds", seeds)
    for line in SCENE:
        say(line)
    from fedquilt import api
    from fedquilt.reports.gains import gains_table
    from fedquilt.reports.tables import comparison_table

    made: list[Path] = []
    with resumable(made), watching(quiet) as watch:
        folder, table, found = api.demo(out, numbers, rounds, watch, made.append)
    say("")
    results().print(comparison_table(table))
    say("majority is the floor: it learns nothing. local is each client alone, without the others.")
    say("")
    results().print(gains_table(found))
    say(in_words(found))
    for line in HONEST:
        say(line)
    say("")
    for name, what in [
        ("gains.png", "what each client gains, as a picture"),
        ("convergence.png", "how each method gets better over the rounds"),
        ("comparison.md", "the first table; gains.md has the second"),
    ]:
        say(f"  {folder / name}  {what}")
    say("")
    say("Next:")
    say(f"  fedquilt report {folder} --open")
    say("  fedquilt compare --methods local,fedavg,fedpub,quilt --dataset cora --clients 10 --seeds 0,1,2")
    say("  fedquilt methods quilt")


def in_words(found: Gains) -> str:
    """The table of gains in two sentences, whatever it says."""
    from fedquilt.reports.names import method_title

    all_of = {method: found.of_all(method) for method in found.gains}
    ranked = sorted(all_of, key=lambda method: all_of[method][0])
    low, high = all_of[ranked[0]][0], all_of[ranked[-1]][0]
    losers = {
        method_title(method): [str(client) for client, gain in enumerate(found.of_clients(method)[0]) if gain <= -0.05]
        for method in found.gains
    }
    lost = "; ".join(f"{method} {', '.join(clients)}" for method, clients in losers.items() if clients)
    return (
        f"Joining changes the mean over clients by {low:+.1f} ({method_title(ranked[0])}) to {high:+.1f} points "
        f"({method_title(ranked[-1])}). " + (f"Clients that lose on average: {lost}." if lost else "No client loses.")
    )
