"""`fedquilt run` and `fedquilt resume`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import aside, results, say
from fedquilt.cli.errors import resumable
from fedquilt.cli.progress import watching


def run(
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            help="A name (see [bold]fedquilt methods[/]). Default: quilt.",
            rich_help_panel=o.WHAT,
        ),
    ] = None,
    dataset: o.Dataset = None,
    partition: o.Partition = None,
    clients: o.Clients = None,
    sizes: o.Sizes = None,
    split: o.Split = None,
    min_train: o.MinTrain = None,
    edge_noise: o.EdgeNoise = None,
    hold_out_clients: o.HoldOutClients = None,
    metric: o.Metric = None,
    seeds: o.Seeds = None,
    rounds: o.Rounds = None,
    epochs: o.Epochs = None,
    assignments: o.Set = None,
    participation: o.Participation = None,
    eval_every: o.EvalEvery = None,
    patience: o.Patience = None,
    attack: o.Attack = None,
    attack_scale: o.AttackScale = None,
    attack_ratio: o.AttackRatio = None,
    aggregation: o.Aggregation = None,
    aggregation_trim: o.AggregationTrim = None,
    aggregation_clip: o.AggregationClip = None,
    dp_clip: o.DpClip = None,
    dp_noise: o.DpNoise = None,
    dp_epsilon: o.DpEpsilon = None,
    dp_delta: o.DpDelta = None,
    device: o.Device = None,
    precision: o.Precision = None,
    cohort_size: o.CohortSize = None,
    workers: o.Workers = None,
    data: o.Data = None,
    config: o.Config = None,
    checkpoint_every: o.CheckpointEvery = None,
    out: o.Out = None,
    log: o.Log = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Train one method, for one seed or several."""
    given = dict(locals())  # Before anything else is local: the options, by name.
    for name in ("assignments", "config", "out", "log", "quiet", "as_json"):
        del given[name]
    from fedquilt.api import execute_run
    from fedquilt.runs.config import RunConfig

    values = RunConfig.build(o.chosen(given, config, assignments))
    made: list[Path] = []
    with resumable(made), watching(quiet) as watch:
        done = execute_run(values, out, watch=watch, unnamed=True, on_folder=made.append, log=log or ())
    report(done, as_json, quiet)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder, or a comparison's.")],
    log: o.Log = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Go on with a run or a comparison that was stopped; what is done is not done again."""
    from fedquilt.cli import compare
    from fedquilt.cli.reading import is_comparison

    if is_comparison(folder):
        with resumable([folder]), watching(quiet) as watch:
            table = compare.finish(folder, watch, log or ())
        compare.report(folder, table, as_json)
        return
    from fedquilt import api

    with resumable([folder]), watching(quiet) as watch:
        done = api.resume(folder, watch, log or ())
    report(done, as_json, quiet)


def report(done: Any, as_json: bool, quiet: bool) -> None:
    """The result of a run as a table, or as JSON, and where it is."""
    if as_json:
        say(json.dumps(done.result, ensure_ascii=False))
        if not quiet:
            aside(f"Written to {done.folder}.")
        return
    from fedquilt.reports.tables import run_table

    results().print(run_table(done.result))
    say(f"Written to {done.folder}; see more with 'fedquilt show {done.folder}'.")
