"""`fedquilt run` and `fedquilt resume`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli import compare
from fedquilt.cli import options as o
from fedquilt.cli.console import aside, results, say
from fedquilt.cli.errors import resumable
from fedquilt.cli.progress import watching
from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig

if TYPE_CHECKING:
    from fedquilt.runs.finished import Run

_SEARCH = "tune.json"  # as `fedquilt.tuning.storage` calls it, which needs Optuna


@o.takes_run_options()
def run(
    *,
    options: dict[str, Any],
    config: o.Config = None,
    out: o.Out = None,
    log: o.Log = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Train one method, for one seed or several."""
    run_config = RunConfig.build(o.run_values(options, config))
    from fedquilt.runs.execute import execute_run

    made: list[Path] = []
    with resumable(made), watching(quiet) as watch:
        done = execute_run(run_config, out, watch=watch, new_folder=True, on_folder=made.append, log=log or ())
    show_result(done, as_json, quiet)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder, or a comparison's.")],
    log: o.Log = None,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            help="Go on with other versions of the packages, with more rounds or seeds or another patience in config.json, or "
            "where an earlier fedquilt sealed nothing.",
        ),
    ] = False,
    plugin: o.Plugin = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Go on with a run or a comparison that was stopped; what is done is not done again.

    Refused where graph, partition, split, options or versions are not those it began with, or metrics or summaries were edited.
    """
    from fedquilt.runs.comparison_folder import is_comparison

    if is_comparison(folder):
        from fedquilt.api import resume_comparison

        with resumable([folder]), watching(quiet) as watch:
            table = resume_comparison(folder, watch, log or (), anyway, plugin or ())
        compare.show_results(folder, table, as_json)
        compare.fail_where_any_did(folder, table)
        return
    if (folder / _SEARCH).is_file():
        raise FedquiltError(f"{folder} holds a search; go on with the 'fedquilt tune' command that began it.")
    from fedquilt.runs.execute import resume_run

    with resumable([folder]), watching(quiet) as watch:
        done = resume_run(folder, watch, log or (), anyway, plugins=plugin or ())
    show_result(done, as_json, quiet)


def show_result(done: Run, as_json: bool, quiet: bool) -> None:
    """Print the result of a run as a table or as JSON, and its folder."""
    if as_json:
        say(json.dumps(done.result, ensure_ascii=False))
        if not quiet:
            aside(f"Written to {done.folder}.")
        return
    from fedquilt.reports.tables import run_table

    results().print(run_table(done.result))
    say(f"Written to {done.folder}; see more with 'fedquilt show {done.folder}'.")
