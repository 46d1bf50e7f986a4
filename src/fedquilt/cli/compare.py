"""`fedquilt compare`: several methods on the same cuts and splits, side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import results, say
from fedquilt.cli.errors import resumable
from fedquilt.cli.pictures import draw_convergence
from fedquilt.cli.progress import watching
from fedquilt.cli.reading import COMPARISON, configs_of, read_run, runs_of
from fedquilt.errors import FedquiltError

if TYPE_CHECKING:
    from fedquilt.graphs.graph import Graph
    from fedquilt.graphs.protocol import Protocol
    from fedquilt.runs.config import RunConfig
    from fedquilt.runs.execute import Watcher


def compare(
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
    """Train several methods on the same clients, splits and seeds, and set them side by side."""
    given = dict(locals())  # Before anything else is local: the options, by name.
    for name in ("methods", "assignments", "config", "out", "log", "quiet", "as_json"):
        del given[name]
    values = o.chosen(given, config, assignments)
    names = _names(methods, values)
    made: list[Path] = []
    with resumable(made), watching(quiet) as watch:
        folder, table = carry_out(names, values, out, watch, made=made, log=log or ())
    report(folder, table, as_json)


def carry_out(
    names: Sequence[str],
    values: dict[str, Any],
    out: Path | None,
    watch: Watcher | None,
    unnamed: tuple[Path, str] | None = None,
    made: list[Path] | None = None,
    log: Sequence[str] = (),
) -> tuple[Path, list[dict[str, Any]]]:
    """Train them all; the folder and the results.

    Args:
        names: the methods; values: the options they share.
        out: a new folder; None takes the first free one of a usual name.
        watch: see `fedquilt.runs.execute.Watcher`.
        unnamed: that folder's parent and name; by default runs/compare-<dataset>-<partition>-<clients>.
        made: the folder is added to it as soon as it can be resumed.
        log: loggers; see `fedquilt.run`.
    """
    from fedquilt.api import worker_cluster
    from fedquilt.common.files import write_json
    from fedquilt.datasets.load import load_graph
    from fedquilt.loggers.base import check_loggers
    from fedquilt.runs.compare import check_plan, plan
    from fedquilt.runs.folder import RunFolder

    loggers = check_loggers(log)
    configs = plan(names, values)
    first = configs[0]
    given = load_graph(first.dataset, Path(first.data) if first.data else None)
    resolved = check_plan(configs, given)
    parent, name = unnamed or (Path("runs"), "compare" + resolved.config.name.removeprefix(first.method))
    folder = RunFolder.create(out, name, parent)
    write_json(folder.path / COMPARISON, {"configs": [config.model_dump() for config in configs]})
    if made is not None:
        made.append(folder.path)
    with folder.lock(), worker_cluster(first):
        table = [_one(folder.path, config, given, watch, loggers) for config in configs]
    _write(folder.path, table)
    return folder.path, table


def finish(path: Path, watch: Watcher | None, log: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Go on with a comparison: resume what was begun, start what was not; the results."""
    from fedquilt import api
    from fedquilt.loggers.base import check_loggers
    from fedquilt.runs.config import RunConfig
    from fedquilt.runs.folder import RunFolder

    loggers = check_loggers(log)
    with RunFolder(path).lock():
        configs = [RunConfig.build(config) for config in configs_of(path)]
        if configs:
            with api.worker_cluster(configs[0]):
                table = [_one(path, config, None, watch, loggers) for config in configs]
        else:
            table = [api.resume(run, watch, loggers).result for run in runs_of(path)]
    _write(path, table)
    return table


def report(folder: Path, table: list[dict[str, Any]], as_json: bool) -> None:
    """The results as a table, or as JSON, and where they are."""
    if as_json:
        say(json.dumps({"folder": str(folder), "results": table}, ensure_ascii=False))
        return
    from fedquilt.reports.tables import comparison_table

    results().print(comparison_table(table))
    say(f"Written to {folder}: a folder for each method, comparison.md and convergence.png.")


def _one(
    folder: Path,
    config: RunConfig,
    given: tuple[Graph, Protocol] | None,
    watch: Watcher | None,
    log: Sequence[str],
) -> dict[str, Any]:
    """Train one method of a comparison, from where it was left if it was begun."""
    from fedquilt import api

    place = folder / config.method
    if (place / "config.json").is_file():
        return api.resume(place, watch, log).result
    return api.execute_run(config, place, given, watch, log=log).result


def _write(folder: Path, table: list[dict[str, Any]]) -> None:
    from fedquilt.common.files import write_text
    from fedquilt.reports.tables import comparison_table, to_markdown

    write_text(folder / "comparison.md", to_markdown(comparison_table(table)))
    draw_convergence([read_run(run) for run in runs_of(folder)], folder / "convergence.png")


def _names(methods: str | None, values: dict[str, Any]) -> list[str]:
    """The methods to compare: the option's, else the config file's; both are taken out of `values`."""
    listed = values.pop("methods", None)
    single = values.pop("method", None)
    if methods is not None:
        listed = methods.split(",")
    elif listed is None and single is not None:
        listed = [single]
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise FedquiltError("Say which methods to compare, such as --methods local,fedavg,fedpub.")
    names = [name.strip() for name in listed if name.strip()]
    if not names:
        raise FedquiltError("Say which methods to compare, such as --methods local,fedavg,fedpub.")
    return names
