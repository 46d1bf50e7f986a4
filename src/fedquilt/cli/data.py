"""The commands before training: `fedquilt datasets` and `fedquilt partition`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import results, say
from fedquilt.cli.targets import PICTURES, check_target
from fedquilt.common.registry import BUILT_IN, load_plugins

if TYPE_CHECKING:
    from fedquilt.datasets.dataset import Dataset


def datasets(data: o.Data = None, plugin: o.Plugin = None) -> None:
    """List the graphs that can be named, and whether they are on this machine."""
    load_plugins(plugin or (), named=True)
    from rich.table import Table

    from fedquilt.datasets.catalogue import CATALOGUE
    from fedquilt.datasets.catalogue import datasets as known
    from fedquilt.datasets.load import data_folder

    folder = data_folder(data)
    table = Table()
    for heading in ("Name", "What", "Nodes", "Edges", "Features", "Classes", "Metric", "Split", "Here"):
        table.add_column(heading, justify="right" if heading in ("Nodes", "Edges", "Features", "Classes") else "left")
    added = any(CATALOGUE.origin(entry.name) != BUILT_IN for entry in known())
    if added:
        table.add_column("From")
    for entry in known():
        split = "/".join(f"{100 * share:g}" for share in entry.protocol.split)
        sizes = (f"{size:,}" for size in (entry.nodes, entry.edges, entry.features, entry.classes))
        origin = [CATALOGUE.origin(entry.name)] if added else []
        table.add_row(
            entry.name, entry.description, *sizes, entry.protocol.metric, split, _here(entry, folder), *origin
        )
    results().print(table)
    say(f"Looked in {folder}. A graph that is not here is fetched, where possible, when it is first used.")


def partition(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A name, an npz file or a folder of tables.")],
    plugin: o.Plugin = None,
    kind: Annotated[
        str,
        typer.Option("--kind", "-k", help=f"One of: {o.PARTITION_KINDS}."),
    ] = "disjoint",
    clients: Annotated[
        int | None,
        typer.Option(
            "--clients",
            "-c",
            help="Into how many clients. Default: 10, or what the kind gives.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", "-s", help="What random choices derive from.", min=0)] = 0,
    sizes: o.Sizes = None,
    alpha: o.Alpha = None,
    data: o.Data = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The npz file to write.", rich_help_panel=o.OUTPUT)
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="A figure (png, pdf or svg) of who holds what.", rich_help_panel=o.OUTPUT),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that are there.", rich_help_panel=o.OUTPUT)
    ] = False,
) -> None:
    """Cut a graph into clients, print what the cut looks like, and save it."""
    load_plugins(plugin or (), named=True)
    check_target(out, (".npz",), force)
    check_target(picture, PICTURES, force)
    from rich.table import Table

    from fedquilt.datasets.load import load_graph
    from fedquilt.graphs.prepare import prepare
    from fedquilt.partition.kind import KINDS
    from fedquilt.partition.source import KindSource
    from fedquilt.partition.statistics import statistics
    from fedquilt.partition.storage import save

    graph = prepare(*load_graph(dataset, data))
    chosen = KINDS.find(kind)
    if clients is None and chosen.clients == "given":
        clients = 10
    shares = None if sizes is None else o.whole_numbers("sizes", sizes)
    cut = KindSource(chosen, dataset).partition(graph, clients, seed, sizes=shares, alpha=alpha)
    summary = statistics(graph, cut)
    heading = f"{graph.name}, {kind}, {cut.clients} clients, seed {seed}"
    table = Table(title=heading, title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("Whole graph", justify="right")
    table.add_column("Mean client", justify="right")
    for row in summary.rows():
        table.add_row(*row)
    results().print(table)
    if out is not None:
        save(cut, out)
        say(f"Written to {out}; train on it with 'fedquilt run --dataset {dataset} --partition {out}'.")
    if picture is not None:
        from fedquilt.reports.partition_picture import partition_picture

        partition_picture(graph.edges, cut.nodes, graph.y, picture, heading, graph.class_names)
        say(f"Drawn to {picture}.")


def _here(entry: Dataset, folder: Path) -> str:
    """Say whether a file of the dataset, with any parameters, is in the data folder."""
    if entry.raw is None:
        return "built in"
    patterns = [re.sub(r"\{\w+\}", "*", name) for name in entry.files or (entry.name,)]
    return "yes" if any(next(folder.glob(f"{pattern}.npz"), None) for pattern in patterns) else "no"
