"""`fedquilt rehearse`: a whole federation on this machine, to try it before others take part."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import aside, results, say
from fedquilt.cli.errors import StoppedError, limits_explained
from fedquilt.errors import FedquiltError
from fedquilt.runs.read_config import parse_settings
from fedquilt.tasks import NODE_CLASSIFICATION


def rehearse(
    sites: Annotated[
        str,
        typer.Option(
            "--sites",
            help="The sites' site.yaml files, with commas between, or a pattern such as 'sites/*/site.yaml'.",
            show_default=False,
        ),
    ],
    method: Annotated[str, typer.Option("--method", "-m", help="A name (see [bold]fedquilt methods[/]).")] = "quilt",
    rounds: Annotated[int, typer.Option("--rounds", "-r", help="Communication rounds; each takes seconds.")] = 10,
    epochs: o.Epochs = None,
    assignments: o.Set = None,
    seed: Annotated[int, typer.Option("--seed", help="What everything random is drawn from.")] = 0,
    task: Annotated[
        str, typer.Option("--task", help="What is learned: node-classification, node-regression or link.")
    ] = NODE_CLASSIFICATION,
    task_settings: o.SetTask = None,
    metric: Annotated[
        str, typer.Option("--metric", help="What chooses the best round: accuracy, auc, macro-f1, log-loss and others.")
    ] = "accuracy",
    class_weights: Annotated[
        str,
        typer.Option(
            "--class-weights", help="none, balanced (by each site's own labels), or one number a class: 1,1,3.5."
        ),
    ] = "none",
    min_sites: Annotated[
        int | None, typer.Option("--min-sites", help="A round counts with so many sites. Default: all of them.")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds that a site has to answer.")] = 120.0,
    aggregation: Annotated[
        str, typer.Option("--aggregation", help="mean, or a robust average: guarded, median, trimmed, clipped.")
    ] = "mean",
    secure_aggregation: Annotated[
        bool,
        typer.Option("--secure-aggregation", help="The coordinator sees only sums over sites (fedquilt docs privacy)."),
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder to write; one that was stopped is gone on with.")
    ] = Path("rehearsal"),
    quiet: o.Quiet = False,
    as_json: o.Json = False,
) -> None:
    """Try a federation on this machine: Flower's own processes, TLS and node keys, and nothing left running.

    Sites keep what is private under the folder that is written, not where their site.yaml says: a rehearsal spends no budget.
    """
    _check_minimum(
        {"--rounds": (rounds, 1), "--epochs": (epochs, 1), "--seed": (seed, 0), "--min-sites": (min_sites, 0)}
    )
    if not 0 < timeout < math.inf:
        raise FedquiltError(f"--timeout is {timeout:g}; say how many seconds a site has to answer, such as 120.")
    from fedquilt.federation.local import rehearse as local

    options: dict[str, Any] = {
        "method": method,
        "rounds": rounds,
        "epochs": epochs or 0,
        "settings": parse_settings(assignments or []),
        "seed": seed,
        "task": task,
        "task-settings": parse_settings(task_settings or [], "--set-task", "decoder=mlp"),
        "metric": metric,
        "class-weights": class_weights,
        "min-sites": min_sites or 0,
        "timeout": timeout,
        "aggregation": aggregation,
        "secure-aggregation": secure_aggregation,
    }
    with _stoppable(), limits_explained():
        result = local.rehearse(local.site_files(sites), options, out, (lambda text: None) if quiet else aside)
    if as_json:
        say(json.dumps(result, ensure_ascii=False))
        return
    from fedquilt.reports.tables import run_table

    results().print(run_table(result))
    say(f"Written to {out}: run (the coordinator's), sites (each with its model and ledger), logs.")


def _check_minimum(given: Mapping[str, tuple[int | None, int]]) -> None:
    """Refuse an option that is below its minimum."""
    for option, (value, minimum) in given.items():
        if value is not None and value < minimum:
            raise FedquiltError(f"{option} is {value}; it has to be at least {minimum}.")


@contextmanager
def _stoppable() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C inside the block, so that processes are stopped and the user is told how to resume."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except KeyboardInterrupt:
        raise StoppedError("stopped; the same command goes on.") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
