"""One graph of the user's: `fedquilt graph check` and `fedquilt graph import`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import results, say
from fedquilt.cli.progress import showing_notices
from fedquilt.cli.table_options import takes_table_options
from fedquilt.cli.targets import check_target
from fedquilt.errors import FedquiltError

if TYPE_CHECKING:
    from fedquilt.graphs.check import GraphReport
    from fedquilt.graphs.tables import Tables


@takes_table_options
def graph_check(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="An npz file, a folder of tables, a table of nodes, or a name.")
    ],
    data: o.Data = None,
    *,
    options: dict[str, Any],
) -> None:
    """See whether a graph is sound, what it looks like, and what training will do about it."""
    from fedquilt.datasets.catalogue import in_catalogue
    from fedquilt.datasets.check import check_graph
    from fedquilt.graphs.tables import is_table, read_tables_fully, table_options

    path = Path(file).expanduser()
    with showing_notices(logging.INFO):
        if not in_catalogue(file) and is_table(path):
            tables = read_tables_fully(path, options=table_options(path, options))
            report = check_graph(tables.graph)
            _show_columns(tables)
        elif options:
            raise FedquiltError(f"--{next(iter(options))} is for tables, and '{file}' is none; leave it out.")
        else:
            report = check_graph(file, data)
    _show(report)
    say("The graph is sound.")


@takes_table_options
def graph_import(
    nodes: Annotated[Path, typer.Argument(metavar="NODES", help="A table of nodes (csv, tsv, parquet), or a folder.")],
    edges: Annotated[
        Path | None,
        typer.Argument(
            metavar="[EDGES]", help="The table of edges; else edges.csv beside nodes.csv.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The npz file to write.", rich_help_panel=o.OUTPUT)
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            "--like",
            help="An npz file that was imported before: make the same features as there.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = None,
    unlabelled: Annotated[
        bool,
        typer.Option(
            "--unlabelled", help="There are no labels, as in a graph to predict for.", rich_help_panel=o.OUTPUT
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a file that is there.", rich_help_panel=o.OUTPUT)
    ] = False,
    *,
    options: dict[str, Any],
) -> None:
    """Read tables as people have them, say what became of each column, and write one npz file."""
    from fedquilt.graphs.npz import read_npz, write_npz
    from fedquilt.graphs.tables import read_tables_fully, table_options

    if out is None:
        raise FedquiltError("graph import needs a file to write; name it with --out mine.npz.")
    check_target(out, (".npz",), force)
    nodes = nodes.expanduser()
    if not nodes.exists():
        raise FedquiltError(f"There is no file or folder '{nodes}'; check the path.")
    encoding = None if like is None else read_npz(like, labelled=False).encoding
    if like is not None and encoding is None:
        raise FedquiltError(
            f"{like} does not say how its columns became features; write it with 'fedquilt graph import'."
        )
    chosen = table_options(nodes, options)
    with showing_notices(logging.INFO):
        tables = read_tables_fully(nodes, edges, labelled=not unlabelled, encoding=encoding, options=chosen)
    write_npz(tables.graph, out, clients=tables.clients)
    _show_columns(tables)
    graph = tables.graph
    labels = f"{graph.classes:,} classes" if graph.numbers is None else "labels that are numbers"
    say(f"{graph.nodes:,} nodes, {graph.features:,} features, {labels}: written to {out}.")
    say(f"See what training will do about it with 'fedquilt graph check {out}'.")


def _show_columns(tables: Tables) -> None:
    from rich.table import Table

    from fedquilt.graphs.tables.summary import column_rows, sentences

    table = Table(title=f"Columns of {tables.graph.name}", title_justify="left", title_style="bold")
    for heading in ("Column", "Is", "Became"):
        table.add_column(heading, overflow="fold")
    for row in column_rows(tables):
        table.add_row(*row)
    results().print(table)
    for sentence in sentences(tables):
        say(sentence)


def _show(report: GraphReport) -> None:
    from rich.table import Table

    table = Table(title=report.name, title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for row in report.rows():
        table.add_row(*row)
    results().print(table)
    rows = report.columns.rows(report.feature_names)
    if rows:
        scale = Table(title="Scale of the features", title_justify="left", title_style="bold")
        for heading in ("Feature", "Least", "Largest", "Deviation", "Skew"):
            scale.add_column(heading, justify="left" if heading == "Feature" else "right", overflow="fold")
        for figures in rows:
            scale.add_row(*figures)
        results().print(scale)
        more = report.features - int(report.columns.binary.sum()) - len(rows)
        if more:
            say(f"And {more:,} more; columns of 0 and 1 are not shown.")
    if report.findings:
        found = Table(title="What training will do", title_justify="left", title_style="bold", show_lines=True)
        for heading in ("", "Found", "Then"):
            found.add_column(heading, overflow="fold")
        for finding in report.findings:
            found.add_row(finding.topic, finding.found, finding.done)
        results().print(found)
