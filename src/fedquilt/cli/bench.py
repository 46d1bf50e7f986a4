"""`fedquilt bench`: how long a round of each method takes, against a plain loop and against earlier results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedquilt.cli import console
from fedquilt.cli import options as o
from fedquilt.cli.console import aside, results, say
from fedquilt.cli.targets import PICTURES, check_target
from fedquilt.errors import FedquiltError

if TYPE_CHECKING:
    from fedquilt.bench.measure import Watch

TURNS, QUICK_TURNS = 10, 3
COMPARE = "Compare with earlier results"


def bench(
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            help="Names, such as fedpub,quilt; FedAvg, which they are set against, is always there. Default: all.",
            rich_help_panel=o.WHAT,
        ),
    ] = None,
    cell: Annotated[
        list[str] | None,
        typer.Option(
            "--cell",
            metavar="DATASET/PARTITION/CLIENTS",
            help="A cut to measure on, such as cora/disjoint/10, or 'hospital-*/natural/3' for clients that have a graph "
            "each; may be repeated. patchwork/natural/10, which needs no file, is "
            "always there. Default: two cuts of Cora, one of Minesweeper and one of Squirrel.",
            rich_help_panel=o.WHAT,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            "-r",
            min=1,
            help=f"Turns that each side has, of five rounds each. Default: {TURNS}.",
            rich_help_panel=o.HOW,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help=f"A first look: {QUICK_TURNS} turns, the cells named with --cell and patchwork only, no memory.",
            rich_help_panel=o.HOW,
        ),
    ] = False,
    skip_memory: Annotated[
        bool, typer.Option("--skip-memory", help="Do not measure peak memory.", rich_help_panel=o.HOW)
    ] = False,
    device: o.Device = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            help="CPU threads. Default: OMP_NUM_THREADS, else as many as this process has CPUs.",
            rich_help_panel=o.WHERE,
        ),
    ] = None,
    data: o.Data = None,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history",
            metavar="DIR",
            help="A folder to add the result to, after comparing with the newest one there of this device.",
            rich_help_panel=COMPARE,
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="FILE", help="An earlier result to compare with.", rich_help_panel=COMPARE),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The JSON file to write.", rich_help_panel=o.OUTPUT)
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", help="A picture (png, pdf or svg) of it all.", rich_help_panel=o.OUTPUT),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that are there.", rich_help_panel=o.OUTPUT)
    ] = False,
    quiet: o.Quiet = False,
) -> None:
    """Time a round of every method against a plain PyG loop, see what memory it takes, and what became slower."""
    check_target(out, (".json",), force)
    check_target(figure, PICTURES, force)
    if history is not None and history.exists() and not history.is_dir():
        raise FedquiltError(f"{history} is a file; name a folder to keep results in.")
    from fedquilt.bench.cases import chosen_cases, load_cases
    from fedquilt.bench.history import add_to_history, comparison_sentences
    from fedquilt.bench.measure import bench as measure
    from fedquilt.bench.measure import chosen_device, chosen_methods
    from fedquilt.bench.result import read_result, write_result
    from fedquilt.bench.table import HOW_TO_READ, bench_table, busy_sentences
    from fedquilt.devices.device import using_threads
    from fedquilt.devices.threads import use_available_cpus

    earlier = None if against is None else read_result(against)
    names = chosen_methods(_names(method))
    place = chosen_device(device or "auto")
    cases, left_out = load_cases(chosen_cases(cell, quick), names, str(place), data)
    for sentence in left_out:
        aside(sentence)
    turns = rounds or (QUICK_TURNS if quick else TURNS)
    use_available_cpus()
    with using_threads(threads), _watching(quiet) as watch:
        result = measure(cases, names, turns, place, not (quick or skip_memory), data, watch)
    results().print(bench_table(result))
    say(HOW_TO_READ)
    for sentence in (*result.left_out, *busy_sentences(result)):
        aside(sentence)
    result = replace(result, left_out=[*left_out, *result.left_out])
    if earlier is not None:
        say("\n".join(comparison_sentences(result, earlier, str(against))))
    if history is not None:
        say("\n".join(add_to_history(history, result, aside)))
    if out is not None:
        write_result(result, out)
        say(f"Written to {out}.")
    if figure is not None:
        from fedquilt.bench.figure import bench_figure
        from fedquilt.reports.names import method_title
        from fedquilt.reports.style import save_figure

        save_figure(bench_figure(result, {name: method_title(name) for name in names}), figure)
        say(f"Drawn to {figure}.")


def _names(methods: str | None) -> list[str] | None:
    """Split a comma-separated list of names; None stays None, which means all."""
    if methods is None:
        return None
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise FedquiltError("Say which methods to measure, such as --method fedpub,quilt.")
    return names


@contextmanager
def _watching(quiet: bool) -> Iterator[Watch]:
    """Show progress: a live bar for each case on a terminal, plain lines elsewhere, nothing if quiet.

    The display is updated between turns, never while something is timed.
    """
    if quiet:
        yield lambda what, done, total: None
    elif not sys.stderr.isatty():
        yield lambda what, done, total: aside(f"{what}: {done} of {total}") if done in (0, total) else None
    else:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console.progress(), auto_refresh=False) as bars:
            known: dict[str, int] = {}

            def watch(what: str, done: int, total: int) -> None:
                position = known.setdefault(what, len(known))
                if position == len(bars.tasks):
                    bars.add_task(what, total=total)
                bars.update(bars.tasks[position].id, completed=done, refresh=True)

            yield watch
