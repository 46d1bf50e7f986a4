"""`fedquilt compare`: several methods on the same partitions and splits, side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import results, say
from fedquilt.cli.errors import IncompleteError, resumable
from fedquilt.cli.progress import watching
from fedquilt.errors import FedquiltError
from fedquilt.runs.failed_method import FAILED


@o.takes_run_options(leave_out=("method",))
def compare(
    *,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            "-m",
            help="Names, such as local,fedavg,fedpub.",
            rich_help_panel=o.WHAT,
            show_default=False,
        ),
    ] = None,
    options: dict[str, Any],
    config: o.Config = None,
    out: o.Out = None,
    log: o.Log = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Train several methods on the same clients, splits and seeds, and set them side by side.

    A method that fails has a row that says why, and the others go on; the exit status is 1 then, and [bold]fedquilt resume[/]
    tries it again.
    """
    values = o.run_values(options, config)
    names = _method_names(methods, values)
    from fedquilt.api import compare_to_folder

    made: list[Path] = []
    with resumable(made), watching(quiet) as watch:
        folder, table = compare_to_folder(names, values, out, watch, on_folder=made.append, log=log or ())
    show_results(folder, table, as_json)
    fail_where_any_did(folder, table)


def show_results(folder: Path, table: list[dict[str, Any]], as_json: bool) -> None:
    """Print the results of a comparison and the verdict on them, as a table or as JSON, and its folder."""
    from fedquilt.reports.stored_verdict import comparison_verdict

    verdict = comparison_verdict(folder)
    if as_json:
        say(json.dumps({"folder": str(folder), "results": table, "verdict": verdict}, ensure_ascii=False))
        return
    from fedquilt.reports.tables import comparison_table

    results().print(comparison_table(table))
    for sentence in verdict:
        say(sentence)
    say(f"Written to {folder}: a folder for each method, comparison.md and convergence.png.")


def fail_where_any_did(folder: Path, table: list[dict[str, Any]]) -> None:
    """End with exit status 1 and a sentence where a method failed; the results of the others are printed already."""
    failed = [str(row["method"]) for row in table if row.get(FAILED)]
    if failed:
        raise IncompleteError(
            f"{len(failed)} of {len(table)} methods failed: {', '.join(failed)} (the table says why); the others are done, and "
            f"'fedquilt resume {folder}' tries again."
        )


def _method_names(methods: str | None, values: dict[str, Any]) -> list[str]:
    """Return the methods to compare: the option's, else the config file's. Removes `methods` and `method` from `values`."""
    listed = values.pop("methods", None)
    single = values.pop("method", None)
    if methods is not None:
        listed = methods.split(",")
    elif listed is None and single is not None:
        listed = [single]
    valid = isinstance(listed, list) and all(isinstance(name, str) for name in listed)
    names = [name.strip() for name in listed if name.strip()] if valid else []
    if not names:
        raise FedquiltError("Say which methods to compare, such as --methods local,fedavg,fedpub.")
    return names
