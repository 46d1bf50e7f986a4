"""`fedquilt tune`: search a method's settings by validation only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import aside, results, say
from fedquilt.cli.errors import StoppedError
from fedquilt.cli.progress import duration, number
from fedquilt.cli.targets import check_target

if TYPE_CHECKING:
    from fedquilt.tuning.outcome import Trial, Tuned
    from fedquilt.tuning.progress import SearchProgress, Watch

SEARCH = "How to search"
_SHOWN = 5  # trials in the table


def tune(
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
    trials: Annotated[
        int,
        typer.Option("--trials", "-n", help="How many settings to try, the defaults first.", rich_help_panel=SEARCH),
    ] = 30,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", help="Start no trial after so long. Default: none.", rich_help_panel=SEARCH
        ),
    ] = None,
    space: Annotated[
        Path | None,
        typer.Option(
            "--space",
            help="A YAML file that says what to search instead, such as 'hidden: [[64, 128]]' and "
            "'lr: {low: 0.001, high: 0.1, log: true}'. Default: what suits the method.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting that is fixed, and so not searched; may be repeated.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    seeds: o.Seeds = None,
    rounds: o.Rounds = None,
    epochs: o.Epochs = None,
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
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            help="The folder to keep the search in; the same command again goes on there. By default one under tuning/.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A config file to write the best settings to, beside the folder's own best.yaml.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = None,
    quiet: o.Quiet = False,
) -> None:  # fmt: skip
    """Search a method's settings by validation only; the test nodes are never looked at."""
    given = dict(locals())  # Before anything else is local: the options, by name.
    for name in ("trials", "timeout", "space", "assignments", "config", "into", "out", "quiet"):
        del given[name]
    from fedquilt.runs.config import RunConfig
    from fedquilt.tuning.search import Search

    check_target(out, (".yaml", ".yml"), force=_ours(out))
    search = Search(RunConfig.build(o.chosen(given, config, assignments)), space)
    folder = into or Path("tuning") / search.config.name
    try:
        with watching(quiet) as watch:
            tuned = search.run(trials, timeout, folder, watch)
    except KeyboardInterrupt:
        raise StoppedError("stopped; continue with the same command.") from None
    if out is not None:
        search.write(out, tuned.trials)
    report(tuned, search.config.metric or "", folder, out or folder / "best.yaml")


def report(tuned: Tuned, metric: str, folder: Path, best: Path) -> None:
    """Print the best trials, the best one beside the defaults, and where its config file is."""
    results().print(table(tuned, metric))
    say(f"The best validation {metric} is {number(tuned.best_val)}, {_beside_defaults(tuned)}.")
    counts = {state: sum(t.state == state for t in tuned.trials) for state in ("done", "stopped", "failed")}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    say(f"Trials: {said}.")
    if tuned.importances:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in tuned.importances.items())
        say(f"What made the difference, roughly: {shares}.")
    say(f"Written to {folder}; train with the best settings: 'fedquilt run --config {best}'.")


def _beside_defaults(tuned: Tuned) -> str:
    if tuned.default_val is None:
        return f"in trial {tuned.best.number}; with the defaults training failed"
    if tuned.best.number == 1:
        return "that of the defaults: nothing better was found"
    gain = tuned.best_val - tuned.default_val
    return f"in trial {tuned.best.number}, and that of the defaults {number(tuned.default_val)} ({gain:+.2f})"


def table(tuned: Tuned, metric: str) -> Any:
    """The best trials and the defaults, validation only."""
    from rich.table import Table

    done = sorted((t for t in tuned.trials if t.val is not None), key=lambda t: (-(t.val or 0), t.number))
    shown = done[:_SHOWN] + [t for t in done[_SHOWN:] if t.number == 1]
    names = list(dict.fromkeys(name for trial in shown for name in trial.settings))
    out = Table(title=f"Best trials by validation {metric} in %", title_justify="left", title_style="bold")
    out.add_column("Trial")
    out.add_column("Val", justify="right")
    for name in names:
        out.add_column(name, justify="right")
    for trial in shown:
        who = f"{trial.number} (defaults)" if trial.number == 1 else str(trial.number)
        out.add_row(who, number(trial.val or 0.0), *(_value(trial.settings.get(name, "")) for name in names))
    return out


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _ours(path: Path | None) -> bool:
    """Whether a search wrote the file; then it may be overwritten."""
    from fedquilt.tuning.outcome import MARK

    return path is not None and path.is_file() and path.read_bytes().startswith(MARK.encode())


@contextmanager
def watching(quiet: bool) -> Iterator[Watch | None]:
    """The `watch` of a search: a live bar on a terminal, else a line for each trial; None when quiet."""
    if quiet:
        yield None
    elif not sys.stderr.isatty():
        yield _line
    else:
        with _bar() as watch:
            yield watch


def in_words(trial: Trial) -> str:
    """The end of a trial in words."""
    if trial.state == "done":
        return f"val {number(trial.val or 0.0)}"
    return f"stopped after {trial.rounds} rounds" if trial.state == "stopped" else f"failed: {trial.why}"


def _line(progress: SearchProgress) -> None:
    if progress.ended is not None:
        left = f", {duration(progress.left)} left" if progress.trial < progress.trials else ""
        what = in_words(progress.ended).rstrip(".")
        aside(f"trial {progress.trial}/{progress.trials}: {what}; best {number(progress.best)}{left}")


@contextmanager
def _bar() -> Iterator[Watch]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        "trial {task.fields[trial]}",
        "val {task.fields[val]}",
        "[green]best {task.fields[best]}",
        "[dim]{task.fields[left]}",
    )
    first, *rest = (TextColumn(column) for column in columns)
    with Progress(first, BarColumn(bar_width=24), *rest, console=Console(file=sys.stderr), refresh_per_second=4) as bar:
        task = bar.add_task("tune", total=None, trial="-", val="-", best="-", left="")

        def watch(progress: SearchProgress) -> None:
            over = progress.trial == progress.trials and progress.ended is not None
            bar.update(
                task,
                total=progress.trials,
                completed=progress.trial - 1 + progress.share,
                trial=f"{progress.trial}/{progress.trials}",
                val=number(progress.val),
                best=number(progress.best),
                left="" if over else f"{duration(progress.left)} left",
            )

        yield watch
