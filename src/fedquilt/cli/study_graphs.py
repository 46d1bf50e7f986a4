"""`fedquilt study graphs`: fetch graphs, and run all that the catalogue of studies has on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import aside, say
from fedquilt.cli.study import INTO, Into, Jobs, SeedCount

if TYPE_CHECKING:
    from fedquilt.studies.cells import Cell
    from fedquilt.studies.plan import StudyPlan


def graphs(
    names: Annotated[str, typer.Argument(metavar="GRAPHS", help="Names of graphs, such as roman-empire,questions.")],
    seeds: SeedCount = None,
    jobs: Jobs = 1,
    into: Into = INTO,
    data: o.Data = None,
    device: o.Device = None,
    count: Annotated[
        bool, typer.Option("--count", help="Only say how many cells each study has on them; nothing is run.")
    ] = False,
    quiet: o.Quiet = False,
) -> None:
    """Download graphs that are not here, and run the cells of every study of the catalogue on them.

    A graph that cannot be had is named, and the others are run. Stop it at any time, and run it again to go on.
    """
    from fedquilt.cli.errors import StoppedError, limits_explained
    from fedquilt.cli.study_view import progress_display
    from fedquilt.studies.catalogue_files import study_names
    from fedquilt.studies.plan import plan_study
    from fedquilt.studies.runner import run_studies
    from fedquilt.studies.selection import compared_cells, later_count
    from fedquilt.studies.store import CellStore

    wanted, folder = _known(names), None if data is None else str(data)
    if not count:
        wanted = _fetched(wanted, folder)
    found: list[tuple[StudyPlan, list[Cell]]] = []
    for name in study_names():
        plan = plan_study(name, None, seeds, folder, device or "auto")
        if cells := [cell for cell in plan.cells if _base(cell.config.dataset) in wanted]:
            found.append((plan, cells))
            say(f"{name}: {len(compared_cells(plan.study, cells)) + later_count(plan.study, cells)} cells")
    if count:
        return
    failed = False
    try:
        with limits_explained():
            for plan, cells in found:
                aside(f"{plan.name}:")
                progress = progress_display(quiet)
                run_studies([(plan.study, cells)], CellStore(into), 1 if plan.study.alone else jobs, progress=progress)
                failed |= progress.failed > 0
    except KeyboardInterrupt:
        raise StoppedError("stopped; run the same command again to go on.") from None
    say(f"Done; 'fedquilt study report NAME --into {into}' has the table of each, and names the cells that failed.")
    if failed:
        raise typer.Exit(1)


def _known(names: str) -> list[str]:
    """The graphs of a list, as the catalogue calls them; one that it does not have is refused."""
    from fedquilt.datasets.catalogue import choose

    return list(dict.fromkeys(choose(name.strip()).dataset.name for name in names.split(",")))


def _fetched(wanted: list[str], data: str | None) -> list[str]:
    """Those of the graphs that are here, or could be downloaded; refused where none is."""
    from pathlib import Path

    from fedquilt.datasets.load import load_graph
    from fedquilt.errors import FedquiltError

    here, why = [], []
    for name in wanted:
        try:
            load_graph(name, None if data is None else Path(data))
            here.append(name)
        except FedquiltError as error:
            why.append(str(error))
    if not here:
        others = f" (nor {', '.join(wanted[1:])})" if wanted[1:] else ""
        raise FedquiltError(f"{why[0].rstrip('.')}{others}.")
    for sentence in why:
        aside(sentence)
    return here


def _base(dataset: str) -> str:
    """The name of a dataset in the catalogue without its parameters; other graphs keep theirs."""
    from fedquilt.datasets.catalogue import choose, in_catalogue

    return choose(dataset).dataset.name if in_catalogue(dataset) else dataset
