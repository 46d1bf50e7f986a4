"""fedquilt from Python: `run`, `compare`, `resume` and `load_run`. The commands call the same functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from fedquilt.common import registry
from fedquilt.loggers.base import check_loggers
from fedquilt.nn.module_backbone import Factory, name_backbone
from fedquilt.reports.compared_runs import ComparedRuns
from fedquilt.reports.comparison import write_comparison
from fedquilt.reports.gains import Gains, write_gains
from fedquilt.reports.read_run import read_run
from fedquilt.runs import finished
from fedquilt.runs.compare import Comparison, comparison_configs
from fedquilt.runs.comparison_folder import runs_of
from fedquilt.runs.config import RunConfig
from fedquilt.runs.execute import Watcher, execute_run, resume_run
from fedquilt.runs.finished import Run
from fedquilt.runs.given_data import GivenData, named_data
from fedquilt.runs.option_files import with_option_signature
from fedquilt.runs.progress import shown_progress
from fedquilt.runs.run_options import RunOptions


@with_option_signature
def run(
    method: str = "quilt",
    dataset: GivenData = "patchwork",
    *,
    out: str | os.PathLike[str] | None = None,
    watch: Watcher | None = None,
    log: str | Sequence[str] = (),
    progress: bool | None = None,
    backbone: str | Factory | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Train one method on one partition of one graph, for some seeds.

    Args:
        method: its name; see `fedquilt methods`.
        dataset: a name, a path, a `Graph`, or PyTorch Geometric's `Data`; or a list of these, or a dict by name, with the
            graph of each client (see `fedquilt docs data`).
        out: folder to write to (must be new); None keeps everything in memory.
        watch: a `fedquilt.Callback`, or several: told of each seed and round, and may stop the run.
        log: loggers, such as ["tensorboard"], which write to logs/ in `out`, else to a folder of the run's name in logs/ here.
        progress: a bar on stderr or in the notebook. None: where there is a terminal or a notebook; True: else lines, too.
        backbone: the network of methods that take any: a name (the setting `model`), a torch.nn.Module class or a function that
            makes a module from (features, classes, settings). To resume such a run in another process, put it in a plug-in.
        **options: the other fields of `RunConfig`; `fedquilt docs options` lists them.
    """
    named, given = named_data(dataset, options)
    config = RunConfig.build(_named_things({**options, **named, "method": method}, backbone))
    with shown_progress(progress, watch) as callbacks:
        return execute_run(config, _path(out), given, callbacks, log=log)


@with_option_signature
def compare(
    methods: Sequence[str],
    dataset: GivenData = "patchwork",
    *,
    out: str | os.PathLike[str] | None = None,
    watch: Watcher | None = None,
    log: str | Sequence[str] = (),
    progress: bool | None = None,
    backbone: str | Factory | None = None,
    **options: Unpack[RunOptions],
) -> ComparedRuns:
    """Train several methods on the same partitions and splits; see `run`.

    What is returned is a sequence of `Run` with a table: print it, or see its `table` (a DataFrame) and `plot()`.

    A folder `out` gets a run folder for each method, compare.json, comparison.md and convergence.png. `settings` go to every
    method that has them; a setting that none of the methods knows is an error. A method that fails is named in a warning of the
    logger fedquilt, has a row in the table and no run in the list; an error where all methods fail.

    Args:
        methods: their names, in the order of the table.
        dataset: a name, a path, a `Graph`, or PyTorch Geometric's `Data`; or a list of these, or a dict by name, with the
            graph of each client (see `fedquilt docs data`).
        out: folder to write to (must be new); None keeps everything in memory.
        watch: callbacks; see `run`.
        log: loggers; see `run`.
        progress: see `run`.
        backbone: see `run`; it goes to every method that takes any.
        **options: the other fields of `RunConfig`; `fedquilt docs options` lists them.
    """
    check_loggers(log)
    named, given = named_data(dataset, options)
    configs = comparison_configs(methods, _named_things({**options, **named}, backbone))
    comparison = Comparison.create(configs, _path(out), given)
    with shown_progress(progress, watch) as callbacks:
        runs = list(comparison.runs(callbacks, log))
    results = comparison.results([run.result for run in runs])
    if comparison.folder is not None:
        write_comparison(comparison.folder, results)
    return ComparedRuns(runs, comparison.folder, results)


def compare_to_folder(
    methods: Sequence[str],
    options: Mapping[str, Any],
    out: Path | None,
    watch: Watcher | None = None,
    *,
    new_folder: tuple[Path, str] = (Path("runs"), ""),
    on_folder: Callable[[Path], None] | None = None,
    log: str | Sequence[str] = (),
) -> tuple[Path, list[dict[str, Any]]]:
    """As `compare`, but only results stay in memory, not the models; returns the folder and the results.

    Args:
        methods: their names; options: those they share.
        out: the folder to write; None: a new one, see `Comparison.create` for `new_folder`.
        watch: callbacks; see `run`.
        new_folder: the parent and the name of a new folder.
        on_folder: called with the folder as soon as the comparison can be resumed from it.
        log: loggers; see `run`.
    """
    check_loggers(log)
    comparison = Comparison.create(comparison_configs(methods, options), out, new_folder=new_folder)
    assert comparison.folder is not None
    if on_folder is not None:
        on_folder(comparison.folder)
    return comparison.folder, _finish(comparison, comparison.folder, watch, log)


DEMO_METHODS = ("majority", "local", "fedavg", "fedper", "fedpub", "quilt")
DEMO_SPLIT = "5/45/50"  # one label in twenty: owners with few labels are those who gain by joining


def demo(
    out: Path | None,
    seeds: Sequence[int],
    rounds: int | None = None,
    watch: Watcher | None = None,
    on_folder: Callable[[Path], None] | None = None,
) -> tuple[Path, list[dict[str, Any]], Gains]:
    """Compare six methods, each with its defaults, on patchwork's natural clients with one label in twenty.

    `out` None takes the first free folder of demo, demo-2, ...; see `compare_to_folder`. The folder gets gains.md and
    gains.png too.

    Returns:
        The folder, the results, and what each client gains by joining.
    """
    options = {
        "dataset": "patchwork",
        "partition": "natural",
        "split": DEMO_SPLIT,
        "seeds": list(seeds),
        "rounds": rounds,
    }
    folder, results = compare_to_folder(
        DEMO_METHODS, options, out, watch, new_folder=(Path("."), "demo"), on_folder=on_folder
    )
    return folder, results, write_gains([read_run(run) for run in runs_of(folder)], folder)


def resume_comparison(
    path: str | os.PathLike[str],
    watch: Watcher | None = None,
    log: str | Sequence[str] = (),
    anyway: bool = False,
    plugins: Sequence[str | os.PathLike[str]] = (),
) -> list[dict[str, Any]]:
    """Resume a comparison from its folder: runs that began go on, the others start; returns the results. See `resume`."""
    check_loggers(log)
    registry.load_plugins(plugins, named=True)
    return _finish(Comparison.open(Path(path), anyway), Path(path), watch, log)


def _finish(
    comparison: Comparison, folder: Path, watch: Watcher | None, log: str | Sequence[str]
) -> list[dict[str, Any]]:
    results = comparison.results([run.result for run in comparison.runs(watch, log)])
    write_comparison(folder, results)
    return results


def load_run(path: str | os.PathLike[str], device: str = "auto") -> Run:
    """Read a finished run from its folder. Nothing is trained and no graph is read; `device` is where it admits clients."""
    return finished.load_run(Path(path), device)


def resume(
    path: str | os.PathLike[str],
    watch: Watcher | None = None,
    log: str | Sequence[str] = (),
    anyway: bool = False,
    progress: bool | None = None,
    plugins: Sequence[str | os.PathLike[str]] = (),
) -> Run:
    """Resume a run that was stopped; a finished run is returned as it is.

    Loggers in `log` get all rounds, also those of seeds that were done before, where they do not have them yet. Callbacks in
    `watch` get all rounds of the seeds that are not done.

    A run seals its graph, partition, split, options and versions when it begins. Where one of them changed since, the error
    says which, and nothing is trained. With `anyway` the run goes on with other versions of the packages, with more rounds or
    seeds or another patience in its config.json, or without a seal where an earlier version began it; never with another
    graph, partition, split or other settings.

    A run's plug-ins are executed where you ran the same files before; name others in `plugins` (see `fedquilt docs plugins`).
    """
    with shown_progress(progress, watch) as callbacks:
        return resume_run(Path(path), callbacks, log, anyway, plugins=[os.fspath(file) for file in plugins])


def load_plugins(*paths: str | os.PathLike[str]) -> list[str]:
    """Load plug-ins, files of yours that register methods, datasets, partitions, tasks or backbones; returns their full paths.

    `fedquilt.run(..., plugins=[...])` does the same, and writes their paths to the run's config.json.
    """
    return registry.load_plugins(paths, named=True)


def _named_things(options: dict[str, Any], backbone: str | Factory | None) -> dict[str, Any]:
    """The options with their plug-ins loaded, as who calls us names them, and with the backbone as a setting."""
    files = options.get("plugins")
    if isinstance(files, list | tuple) and all(isinstance(file, str | os.PathLike) for file in files):
        options = options | {"plugins": registry.load_plugins(files, named=True)}
    if backbone is not None:
        options = options | {"settings": {**(options.get("settings") or {}), "model": name_backbone(backbone)}}
    return options


def _path(out: str | os.PathLike[str] | None) -> Path | None:
    return None if out is None else Path(out)
