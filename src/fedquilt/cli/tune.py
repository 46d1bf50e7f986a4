"""`fedquilt tune`: search a method's settings by validation only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedquilt.cli import console
from fedquilt.cli import options as o
from fedquilt.cli.console import aside, results, say
from fedquilt.cli.errors import StoppedError, limits_explained
from fedquilt.cli.targets import check_target
from fedquilt.common.console import duration, number
from fedquilt.runs.config import RunConfig

if TYPE_CHECKING:
    from fedquilt.tuning.outcome import Trial, Tuned
    from fedquilt.tuning.progress import SearchProgress, Watch

SEARCH = "How to search"
_SHOWN = 5  # trials in the table


@o.takes_run_options(leave_out=("settings", "checkpoint_seconds"), panels=(o.WHAT, SEARCH, o.HOW, o.WHERE, o.OUTPUT))
def tune(
    *,
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
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting that is fixed, and so not searched; may be repeated.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    options: dict[str, Any],
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
            "--out",
            "-o",
            help="A config file to write the best settings to, beside the folder's own best.yaml.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = None,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            help="Go on with a search that was begun with other versions of the packages.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = False,
    quiet: o.Quiet = False,
) -> None:
    """Search a method's settings by validation only; the test nodes are never looked at."""
    from fedquilt.tuning.search import Search

    check_target(out, (".yaml", ".yml"), force=_written_by_search(out))
    search = Search(RunConfig.build(o.run_values(options | {"settings": settings}, config)), space)
    folder = into or Path("tuning") / search.config.name
    try:
        with limits_explained(), watching(quiet) as watch:
            tuned = search.run(trials, timeout, folder, watch, anyway)
    except KeyboardInterrupt:
        raise StoppedError("stopped; continue with the same command.") from None
    if out is not None:
        search.write(out, tuned.trials)
    report(tuned, search.config.metric or "", folder, out or folder / "best.yaml")


def report(tuned: Tuned, metric: str, folder: Path, best: Path) -> None:
    """Print the best trials, their gain over the defaults, and the path of the best settings."""
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
    """Build a table of the best trials and the defaults, with validation metrics only."""
    from rich.table import Table

    from fedquilt.reports.names import metric_name

    sign = 1 if tuned.higher_is_better else -1
    unit = " in %" if metric_name(metric).percent else ""
    done = sorted((t for t in tuned.trials if t.val is not None), key=lambda t: (-sign * (t.val or 0), t.number))
    shown = done[:_SHOWN] + [t for t in done[_SHOWN:] if t.number == 1]
    names = list(dict.fromkeys(name for trial in shown for name in trial.settings))
    out = Table(title=f"Best trials by validation {metric}{unit}", title_justify="left", title_style="bold")
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


def _written_by_search(path: Path | None) -> bool:
    """Return whether a search wrote the file; if so, the next search may overwrite it."""
    from fedquilt.tuning.outcome import MARK

    return path is not None and path.is_file() and path.read_bytes().startswith(MARK.encode())


@contextmanager
def watching(quiet: bool) -> Iterator[Watch | None]:
    """Show a search's progress: a live bar on a terminal, a line per trial in a file or a pipe. Yields None when quiet."""
    if quiet:
        yield None
    elif not sys.stderr.isatty():
        yield _line
    else:
        with _bar() as watch:
            yield watch


def in_words(trial: Trial) -> str:
    """Describe the outcome of a trial."""
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
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        "trial {task.fields[trial]}",
        "val {task.fields[val]}",
        "[green]best {task.fields[best]}",
        "[dim]{task.fields[left]}",
    )
    first, *rest = (TextColumn(column) for column in columns)
    with Progress(first, BarColumn(bar_width=24), *rest, console=console.progress(), refresh_per_second=4) as bar:
        task = bar.add_task("tune", total=None, trial="-", val="-", best="-", left="")

        def watch(progress: SearchProgress) -> None:
            finished = progress.trial == progress.trials and progress.ended is not None
            bar.update(
                task,
                total=progress.trials,
                completed=progress.trial - 1 + progress.share,
                trial=f"{progress.trial}/{progress.trials}",
                val=number(progress.val),
                best=number(progress.best),
                left="" if finished else f"{duration(progress.left)} left",
            )

        yield watch
