"""`fedquilt predict`: classes, probabilities or links from the models of a run's clients, or from a site's own model."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import results, say
from fedquilt.cli.targets import check_target
from fedquilt.errors import FedquiltError

if TYPE_CHECKING:
    from fedquilt.runs.predictions import Predictions

_SHOWN, _COLUMNS = 10, 12  # rows and columns that are printed where nothing is written


def predict(
    path: Annotated[
        Path,
        typer.Argument(metavar="RUN|SITE", help="A finished run's folder, or a site's site.yaml.", show_default=False),
    ],
    nodes: Annotated[
        Path | None,
        typer.Option(
            "--nodes",
            "--graph",
            "-g",
            help="What to predict for: a folder of tables, an npz file, or a csv file of nodes without edges. Default: the "
            "clients' own nodes.",
        ),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            "--pairs",
            metavar="FILE",
            help="Of a model that learned links: a csv file with the columns source and target, which hold ids of nodes. "
            "Default: a run's own validation and test edges, and as many pairs that are not joined.",
        ),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option(
            "--client",
            "-k",
            metavar="K",
            help="Of a run, whose model: a number or a name, all, or mean (of all clients' probabilities). "
            "Default: every client's, for its own nodes.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", "-s", help="Of a run, which seed. Default: the first.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The file to write, .csv, .json or .parquet. Default: the first rows are printed.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a file that is there.", rich_help_panel=o.OUTPUT)
    ] = False,
) -> None:
    """Predict the class of nodes, with the probability of every class.

    Of a run: every client's model predicts for the client's own nodes, with the part of the split and the true class, or
    one client's model for the nodes of another graph. Of a site: its own model, for its own graph or another one.
    SITE is the site's site.yaml: its name, graph and state; see 'fedquilt docs sites'. Models that learned links predict
    for pairs of nodes; see 'fedquilt docs link-prediction'.
    """
    from fedquilt.runs.predictions import ENDINGS, check_ending

    check_target(out, ENDINGS, force)
    if out is not None:
        check_ending(out)
    if not path.exists():
        raise FedquiltError(f"There is no file or folder '{path}'; name a run's folder or a site's site.yaml.")
    asked = (path, client, nodes, seed, pairs)
    predictions = _of_run(*asked) if path.is_dir() else _of_site(*asked)
    for warning in predictions.warnings:
        say(f"Warning: {warning}")
    classes = f" in {len(predictions.names)} classes" if predictions.task.has_classes else ""
    what = f"Predicted {_nodes(predictions)}{classes}"
    if out is None:
        _print_rows(predictions)
        say(f"{what}; write all of it with --out predictions.csv.")
        return
    predictions.write(out)
    say(f"{what}; written to {out}.")


def _of_run(path: Path, client: str | None, nodes: Path | None, seed: int | None, pairs: Path | None) -> Predictions:
    from fedquilt.runs.comparison_folder import is_comparison, runs_of

    if is_comparison(path):
        inside = ", ".join(str(run) for run in runs_of(path))
        raise FedquiltError(f"{path} holds several runs; choose one of: {inside}.")
    from fedquilt.runs.finished import load_run
    from fedquilt.runs.folder import RunFolder
    from fedquilt.runs.predict import predict_run

    if RunFolder.open(path).of_sites:
        raise FedquiltError(
            f"The run in {path} has no models: its clients are sites, who have theirs with them; each predicts with its "
            "own site.yaml."
        )
    return predict_run(load_run(path), client, nodes, seed, pairs=pairs)


def _of_site(path: Path, client: str | None, nodes: Path | None, seed: int | None, pairs: Path | None) -> Predictions:
    if client is not None or seed is not None:
        raise FedquiltError(f"--client and --seed are for a run's folder, and {path} is none; a site has one model.")
    from fedquilt.federation.site.config import read_site
    from fedquilt.federation.site.predict import predict as predictions_of

    return predictions_of(read_site(path), nodes, pairs)


def _nodes(predictions: Predictions) -> str:
    what = "node" if predictions.targets is None else "pair"
    count = f"{len(predictions):,} {what}{'s' if len(predictions) != 1 else ''}"
    if predictions.clients is None:
        return count
    whose = list(dict.fromkeys(predictions.clients.tolist()))
    if len(whose) > 1:
        return f"{count} with {len(whose)} clients' models"
    if whose[0] == "mean":
        return f"{count} with the mean of all models"
    return f"{count} with the model of client {whose[0]}"


def _print_rows(predictions: Predictions) -> None:
    from rich.table import Table

    rows = predictions.rows()
    table = Table()
    header = next(rows)
    wide = len(header) > _COLUMNS
    for heading in [*header[:_COLUMNS], *["..."] * wide]:
        table.add_column(heading, justify="right" if heading.startswith("p_") else "left")
    for row in islice(rows, _SHOWN):
        table.add_row(*row[:_COLUMNS], *[""] * wide)
    results().print(table)
    left = len(predictions) - _SHOWN
    if left > 0:
        say(f"... and {left:,} more.")
