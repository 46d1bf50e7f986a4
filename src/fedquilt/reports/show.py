"""The table and the figures that `fedquilt show` makes of a run or a comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from fedquilt.errors import FedquiltError
from fedquilt.reports.client_table import client_table
from fedquilt.reports.confusion import figures_table, run_tables
from fedquilt.reports.read_run import StoredRun, read_run, read_runs, with_failed_rows
from fedquilt.reports.run_figures import draw_convergence, draw_run
from fedquilt.reports.run_findings import SeedFindings, draw_findings, read_findings, read_pair, views_of
from fedquilt.reports.stored_verdict import verdict_of
from fedquilt.reports.tables import comparison_table, run_table
from fedquilt.reports.views import views_sentence


@dataclass(frozen=True)
class Overview:
    """What is shown of a folder.

    Attributes:
        folder: of a run or a comparison; `several` says which.
        runs: its runs; findings: those of one run, or of two that are drawn side by side.
        table: the results; notes: a sentence for each seed that is not done, and one on the views that a run's clients rely on.
        more: tables of the clients by name, of all metrics, of the classes, and the confusion matrix, as far as they are there.
    """

    folder: Path
    several: bool
    runs: list[StoredRun]
    findings: list[SeedFindings]
    table: Table
    notes: list[str]
    more: list[Table] = field(default_factory=list)


def read_overview(folder: Path, against: Path | None = None, client: int | str | None = None) -> Overview:
    """Read the folder of a run or a comparison.

    `against` is a second run to draw beside a single one; `client` is whose classes are shown, all clients' if None.
    """
    runs, several = read_runs(folder)
    if several and client is not None:
        raise FedquiltError(f"{folder} holds several runs; --client goes with one of them.")
    if several and against is not None:
        raise FedquiltError(f"{folder} holds several runs; --against goes with one of them.")
    if against is not None:
        findings = read_pair(runs[0], read_run(against))
    else:
        own = None if several else read_findings(runs[0])
        findings = [] if own is None else [own]
    results = [run.result for run in runs if run.result is not None]
    table = comparison_table(with_failed_rows(folder, results)) if several else run_table(results[0])
    notes = [f"{run.method}: {sentence}" if several else sentence for run in runs for sentence in run.unfinished]
    if several:
        more = [table for table in (figures_table(results),) if table is not None]
        notes += verdict_of(runs)
    else:
        notes += [note for found in findings[:1] for note in _views_notes(found)]
        more = [*([named] if (named := client_table(runs[0])) is not None else []), *run_tables(runs[0], client)]
    return Overview(folder, several, runs, findings, table, notes, more)


def _views_notes(found: SeedFindings) -> list[str]:
    """A sentence on the views that the clients of a seed rely on; none where the method has no views."""
    weights = views_of(found)
    of = f"of seed {found.seed}" if len(found.run.seeds) > 1 else ""
    return [] if weights is None else [views_sentence(weights, of)]


def draw_overview(overview: Overview, suffix: str = ".png") -> list[str]:
    """Draw the figures into figures/ in the folder. Returns the lines to print: notes, then a path for each figure."""
    into = overview.folder / "figures"
    if overview.several:
        into.mkdir(exist_ok=True)
        return [str(path) for path in draw_convergence(overview.runs, into / f"convergence{suffix}")]
    paths = draw_run(overview.runs[0], into, suffix)
    found, notes = draw_findings(overview.findings, into, suffix)
    return [*notes, *map(str, paths + found)]
