"""`fedquilt predict`: classes and probabilities from a site's own model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import say
from fedquilt.cli.site import SiteFile
from fedquilt.cli.targets import check_target


def predict(
    path: SiteFile,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The csv file to write.", show_default=False, rich_help_panel=o.OUTPUT)
    ],
    graph: Annotated[
        Path | None,
        typer.Option(
            "--graph", "-g", help="An npz file or a folder of tables to predict for. Default: the site's own graph."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a file that is there.", rich_help_panel=o.OUTPUT)
    ] = False,
) -> None:
    """Predict the class of every node with the site's own model, also of nodes added since it was trained.

    SITE is the site's site.yaml: its name, graph and state; see 'fedquilt docs sites'.
    """
    check_target(out, (".csv",), force)
    from fedquilt.federation.site.config import read_site
    from fedquilt.federation.site.predict import predict as predictions_of

    predictions = predictions_of(read_site(path), graph)
    for warning in predictions.warnings:
        say(f"Warning: {warning}")
    predictions.write(out)
    say(f"Predicted {len(predictions.ids):,} nodes in {len(predictions.names)} classes; written to {out}.")
