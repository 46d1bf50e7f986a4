"""The part of the HTML report about classes: all metrics, recall and precision by class, and confusion matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.table import Table
from rich.text import Text

from fedquilt.reports.confusion import Confusion, class_table, confusion_of, figures_table, matrix_table
from fedquilt.reports.page.data import PageCell, PageTable
from fedquilt.reports.page.rich_table import page_table
from fedquilt.reports.read_run import StoredRun
from fedquilt.runs.result import client_titles

MOST_CLIENTS = 200  # rows of the table of clients
MOST_MATRICES, MOST_CLASSES = 20, 12  # clients with a matrix of their own, and the classes that each may have
_ONCE = (
    "Computed once, with the models of the best validation round; the mean over the clients for which it is defined."
)


def run_class_tables(run: StoredRun) -> tuple[PageTable, ...]:
    """The tables of one run; none where it stored no figures, as runs of earlier versions and of sites."""
    result, confusion = run.result, confusion_of(run)
    tables = [] if result is None else list(metric_tables([result]))
    if confusion is None:
        return tuple(tables)
    caption = (
        "Recall: how many of a class's test nodes are found. Precision: how many of those predicted are right. "
        f"{confusion.left_out}"
    )
    tables.append(page_table(class_table(confusion), f"Classes ({confusion.whose})", caption.strip()))
    matrix = matrix_table(confusion)
    if matrix is not None:
        how = f"Test nodes by true class (rows) and predicted class (columns). {confusion.left_out}".strip()
        tables.append(page_table(matrix, f"Confusion matrix ({confusion.whose})", how, bold="diagonal"))
    return (*tables, *_client_tables(run, confusion))


def metric_tables(results: Sequence[Mapping[str, Any]]) -> tuple[PageTable, ...]:
    """One table with all metrics of some runs, or none."""
    table = figures_table(results)
    if table is None:
        return ()
    several = "In %, but for log-loss; ↓: lower is better; the best of each is marked. " if len(results) > 1 else ""
    return (_narrow(page_table(table, "All metrics", f"{several}{_ONCE}")),)


def _narrow(table: PageTable) -> PageTable:
    """The table with deviations under the means, so that seven metrics fit beside each other."""
    rows = tuple(tuple(_with_note(cell) for cell in row) for row in table.rows)
    return replace(table, rows=rows)


def _with_note(cell: PageCell) -> PageCell:
    mean, sign, deviation = cell.text.partition(" ± ")
    return replace(cell, text=mean, note=f"± {deviation}") if sign else cell


def _client_tables(run: StoredRun, whole: Confusion) -> list[PageTable]:
    """A row a client, of the first seed that has figures, and the matrices of few clients; folded."""
    seed = next((one for one in run.seeds if one.summary and one.summary.get("confusion")), None)
    counts = None if seed is None else (seed.folder.load_arrays("confusion") or {}).get("counts")
    if seed is None or seed.summary is None or counts is None:
        return []
    classes = whole.shown if len(whole.shown) <= MOST_CLASSES else []
    figures = seed.summary["figures"]
    shown = [name for name in ("accuracy", "balanced-accuracy", "macro-f1") if name in figures]
    titles = client_titles(seed.summary, len(counts))
    table = Table()
    for heading in (
        "Client",
        "Test nodes",
        *(f"{name} %" for name in shown),
        *(f"recall {whole.names[c]}" for c in classes),
    ):
        table.add_column(heading)
    for client, own in enumerate(counts[:MOST_CLIENTS]):
        labelled = own.sum(1)
        recalls = [f"{100 * own[c, c] / labelled[c]:.1f}" if labelled[c] else "-" for c in classes]
        values = [figures[name]["clients"][client] for name in shown]
        cells = ["-" if value is None else f"{value:.1f}" for value in values]
        table.add_row(*(Text(cell) for cell in (titles[client], f"{int(own.sum()):,}", *cells, *recalls)))
    left = f" The first {MOST_CLIENTS} of {len(counts)} clients." if len(counts) > MOST_CLIENTS else ""
    how = f"Seed {seed.seed}. A dash: the client has no test node of the class.{left}"
    tables = [page_table(table, "Classes, client by client", how, folded=True)]
    if len(counts) <= MOST_MATRICES and len(whole.shown) <= MOST_CLASSES:
        for client in range(len(counts)):
            own = confusion_of(run, client)
            matrix = None if own is None else matrix_table(own)
            if own is not None and matrix is not None:
                tables.append(page_table(matrix, f"Confusion matrix ({own.whose})", bold="diagonal", folded=True))
    return tables
