"""`fedquilt study`: the tables and figures of the papers, run and reported."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedquilt.cli import options as o
from fedquilt.cli import study_exchange, study_scoreboard
from fedquilt.cli.console import aside, results, say
from fedquilt.cli.study_exchange import INTO, Into
from fedquilt.common.registry import load_plugins

if TYPE_CHECKING:
    from fedquilt.studies.plan import StudyPlan

study = typer.Typer(
    help="The tables and figures of the papers: run them, and see our numbers beside theirs.", no_args_is_help=True
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="A study's name (see [bold]fedquilt study list[/]), or a YAML file of your own."
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="AXIS=LEVEL,...",
        help="A part of it, such as dataset=cora,citeseer,clients=10; may be repeated.",
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="How many cells run at a time.")]
SeedCount = Annotated[
    int | None, typer.Option("--seeds", min=1, help="How many seeds; by default as many as the paper has.")
]
study.command("export")(study_exchange.export)
study.command("merge")(study_exchange.merge)
study.command("scoreboard")(study_scoreboard.scoreboard)


@study.command("list")
def list_studies(
    paper: Annotated[str | None, typer.Argument(metavar="[PAPER]", help="Only of one paper, such as fedpub.")] = None,
) -> None:
    """All studies, what each claims, and how many cells it has."""
    from rich.table import Table

    from fedquilt.errors import FedquiltError
    from fedquilt.studies.catalogue_files import study_names
    from fedquilt.studies.spec import find_study

    names = [name for name in study_names() if paper is None or name.startswith(f"{paper}-")]
    if not names:
        papers = ", ".join(dict.fromkeys(name.partition("-")[0] for name in study_names()))
        raise FedquiltError(f"There are no studies of '{paper}'; there are some of {papers}.")
    table = Table("Name", "What", "What the paper says")
    for name in names:
        found = find_study(name)
        table.add_row(name, found.title.partition(": ")[2], found.claim or found.question)
    results().print(table)


@study.command("show")
def show(
    name: Name,
    only: Only = None,
    seeds: SeedCount = None,
    jobs: Jobs = 1,
    device: o.Device = None,
    data: o.Data = None,
    into: Into = INTO,
    plugin: o.Plugin = None,
) -> None:
    """What a study runs: its axes, how many cells, how many of them are done, how long the rest takes, and what is missing."""
    load_plugins(plugin or (), named=True)
    from rich.table import Table

    from fedquilt.studies.plan import plan_study
    from fedquilt.studies.published import read_published, wrong_averages
    from fedquilt.studies.selection import compared_cells, later_cells, later_count
    from fedquilt.studies.sentences import left_out
    from fedquilt.studies.spec import find_study
    from fedquilt.studies.store import CellStore
    from fedquilt.studies.time_left import time_left

    plan = plan_study(name, parse_only(only or []), seeds, _text(data), device or "auto")
    shown = plan.study
    say(shown.title)
    say(shown.lead)
    for note in shown.notes:
        say(f"- {note}")
    table = Table("Axis", "Levels")
    for axis, levels in shown.axes.items():
        table.add_row(axis, ", ".join(level.label for level in levels))
    results().print(table)
    cells, missing = plan.available()
    stored = CellStore(into).by_identity()
    first, later = compared_cells(shown, cells), later_cells(shown, cells, stored)
    found = [stored[cell.identity] for cell in [*first, *later] if cell.identity in stored]
    aged = sum(one.stale for one in found)
    whole = find_study(name)
    published = read_published(whole, name)
    total = len(first) + later_count(shown, cells)
    say(
        f"{total} cells with {seeds or shown.seeds} seeds, of which {len(found)} are done; {len(published)} published numbers."
    )
    if aged:
        say(
            f"{aged} of those that are done are stale: another version of the computation finished them; "
            "'fedquilt study run' runs them again, with --stale only them."
        )
    say(time_left(shown, cells, stored, jobs))
    for sentence in wrong_averages(whole, published):
        say(f"A published average is not that of its cells: {sentence}.")
    for sentence in left_out(missing):
        say(sentence)


@study.command("run")
def run(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="Studies' names (see [bold]fedquilt study list[/]), or YAML files of your own. The cells of several are run "
            "as those of one.",
        ),
    ],
    only: Only = None,
    seeds: SeedCount = None,
    jobs: Jobs = 1,
    into: Into = INTO,
    data: o.Data = None,
    device: o.Device = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", min=1, help="CPU threads of each cell. Default: OMP_NUM_THREADS, else its share of the CPUs."
        ),
    ] = None,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the models and checkpoints of cells that are done.")
    ] = False,
    share: Annotated[
        str | None,
        typer.Option(
            "--share", metavar="PART/PARTS", help="Only this machine's part, such as 2/4; see [bold]study export[/]."
        ),
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only cells that another version of the computation finished.")
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes", min=0, help="Start no cell after so many minutes; those that are running are finished."
        ),
    ] = None,
    plugin: o.Plugin = None,
    quiet: o.Quiet = False,
) -> None:
    """Run the cells of studies that are not done yet, then print their tables; stop it at any time, run it again to go on.

    The exit status is 1 where cells failed; the report names them, and the next run tries them again.
    """
    load_plugins(plugin or (), named=True)
    from fedquilt.cli.errors import StoppedError, limits_explained
    from fedquilt.cli.study_view import progress_display
    from fedquilt.devices.device import pick_device
    from fedquilt.errors import FedquiltError
    from fedquilt.studies.cells import Cell
    from fedquilt.studies.plan import plan_study
    from fedquilt.studies.runner import run_studies
    from fedquilt.studies.sentences import left_out
    from fedquilt.studies.share import Share
    from fedquilt.studies.store import CellStore

    part = None if share is None else Share.parse(share)
    pick_device(device or "auto")
    plans = [plan_study(name, parse_only(only or []), seeds, _text(data), device or "auto") for name in names]
    planned = []
    for plan in plans:
        cells, missing = plan.available()
        for sentence in left_out(missing):
            aside(sentence)
        if not cells:
            raise FedquiltError(f"Nothing of {plan.name} can be run here; see 'fedquilt study show {plan.name}'.")
        if plan.study.alone and jobs > 1:
            aside("This study measures time, so one cell runs at a time.")
        planned.append((plan.study, cells))
    store = CellStore(into)
    mine = None if part is None else frozenset[str]().union(*(part.keys(study, cells) for study, cells in planned))
    aged = {identity for identity, one in store.by_identity().items() if one.stale} if stale else None

    def wanted(cell: Cell) -> bool:
        return (aged is None or cell.identity in aged) and (mine is None or cell.key in mine)

    if not any(wanted(cell) for _, cells in planned for cell in cells):
        which = "is stale" if stale else "falls into this share"
        raise FedquiltError(f"Nothing of {', '.join(names)} {which}, so there is nothing to run.")
    progress = progress_display(quiet)
    until = math.inf if minutes is None else time.monotonic() + 60 * minutes
    try:
        with limits_explained():
            for alone in (False, True):
                some = [each for each in planned if each[0].alone == alone]
                if some:
                    run_studies(some, store, 1 if alone else jobs, keep_models, progress, threads, wanted, until)
    except KeyboardInterrupt:
        raise StoppedError("stopped; run the same command again to go on.") from None
    stored = store.by_identity()
    for plan, (_, cells) in zip(plans, planned, strict=True):
        if minutes is None or any(cell.identity in stored for cell in cells):
            _report(plan, into)
        else:
            aside(f"Nothing of {plan.name} was run in {minutes:g} minutes; run the same command again to go on.")
    if progress.failed:
        raise typer.Exit(1)  # the report has named the failed cells


@study.command("report")
def report(
    name: Name,
    only: Only = None,
    seeds: SeedCount = None,
    into: Into = INTO,
    data: o.Data = None,
    show: Annotated[bool, typer.Option("--open", help="Open the HTML page in the browser.")] = False,
) -> None:
    """Print what came of a study so far, and write it as Markdown, CSV, LaTeX, figures and an HTML page."""
    from fedquilt.studies.plan import plan_study

    page = _report(plan_study(name, parse_only(only or []), seeds, _text(data)), into)
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def _report(plan: StudyPlan, into: Path) -> Path:
    """Print the report of a study and write it with its figures; return the path of its page."""
    from fedquilt.errors import FedquiltError
    from fedquilt.studies.figures.drawing import draw_figures
    from fedquilt.studies.formats import for_terminal
    from fedquilt.studies.gather import gather
    from fedquilt.studies.report import write_report
    from fedquilt.studies.sentences import absences, legend, provenance, verdict_sentences
    from fedquilt.studies.tables import all_tables

    summary = gather(plan, into)
    if not any(entry.by_seed for entry in summary.entries):
        for sentence in absences(summary):
            aside(sentence)
        raise FedquiltError(
            f"Nothing of {plan.name} has been run in {into}; run it with 'fedquilt study run {plan.name}'."
        )
    say(summary.study.title)
    say(summary.study.lead)
    for table in all_tables(summary):
        results().print(for_terminal(table))
    say(legend(summary))
    for sentence in (*verdict_sentences(summary), *provenance(summary), *absences(summary)):
        say(sentence)
    folder = into / summary.study.name
    figures = draw_figures(summary, folder / "figures", data=plan.data, warn=aside)
    written = write_report(summary, plan.command, folder, figures)
    for path in (*written, *figures):
        say(str(path))
    return written[-1]


def parse_only(given: list[str]) -> dict[str, list[str]]:
    """Parse `["dataset=cora,citeseer,clients=10"]` to levels by axis; a level without an axis belongs to the axis before it."""
    from fedquilt.errors import FedquiltError

    wanted: dict[str, list[str]] = {}
    for one in given:
        axis = ""
        for piece in one.split(","):
            before, equals, level = piece.partition("=")
            axis, level = (before.strip(), level) if equals else (axis, piece)
            if not axis or not level.strip():
                raise FedquiltError(f"--only {one} is not of the form axis=level, such as dataset=cora,clients=10.")
            wanted.setdefault(axis, []).append(level.strip())
    return wanted


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
