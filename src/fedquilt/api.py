"""fedquilt from Python: `run`, `compare`, `resume` and `load_run`. The commands call the same functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from fedquilt.loggers.base import check_loggers
from fedquilt.reports.comparison import write_comparison
from fedquilt.reports.read_run import read_run
from fedquilt.reports.run_figures import draw_similarity
from fedquilt.runs import finished
from fedquilt.runs.compare import Comparison, comparison_configs
from fedquilt.runs.config import RunConfig
from fedquilt.runs.execute import Watcher, execute_run, resume_run
from fedquilt.runs.finished import Run
from fedquilt.runs.given_data import GivenData, named_data
from fedquilt.runs.option_files import with_option_signature
from fedquilt.runs.run_options import RunOptions


@with_option_signature
def run(
    method: str = "quilt",
    dataset: GivenData = "patchwork",
    *,
    out: str | os.PathLike[str] | None = None,
    watch: Watcher | None = None,
    log: str | Sequence[str] = (),
    **options: Unpack[RunOptions],
) -> Run:
    """Train one method on one partition of one graph, for some seeds.

    Args:
        method: its name; see `fedquilt methods`.
        dataset: a name, a path, a `Graph`, or PyTorch Geometric's `Data`; or a list of these, or a dict by name, with the
            graph of each client (docs/data.md).
        out: folder to write to (must be new); None keeps everything in memory.
        watch: called when a seed starts; see `Watcher`.
        log: loggers, such as ["tensorboard"], which write to logs/ in `out`, else to a folder of the run's name in logs/ here.
        **options: the other fields of `RunConfig`; docs/options.md lists them.
    """
    named, given = named_data(dataset, options)
    config = RunConfig.build({**options, **named, "method": method})
    return execute_run(config, _path(out), given, watch, log=log)


@with_option_signature
def compare(
    methods: Sequence[str],
    dataset: GivenData = "patchwork",
    *,
    out: str | os.PathLike[str] | None = None,
    watch: Watcher | None = None,
    log: str | Sequence[str] = (),
    **options: Unpack[RunOptions],
) -> list[Run]:
    """Train several methods on the same partitions and splits; see `run`.

    A folder `out` gets a run folder for each method, compare.json, comparison.md and convergence.png. `settings` go to every
    method that has them; a setting that none of the methods knows is an error. A method that fails is named in a warning of the
    logger fedquilt, has a row in the table and no run in the list; an error where all methods fail.

    Args:
        methods: their names, in the order of the table.
        dataset: a name, a path, a `Graph`, or PyTorch Geometric's `Data`; or a list of these, or a dict by name, with the
            graph of each client (docs/data.md).
        out: folder to write to (must be new); None keeps everything in memory.
        watch: called when a seed starts; see `Watcher`.
        log: loggers; see `run`.
        **options: the other fields of `RunConfig`; docs/options.md lists them.
    """
    check_loggers(log)
    named, given = named_data(dataset, options)
    configs = comparison_configs(methods, {**options, **named})
    comparison = Comparison.create(configs, _path(out), given)
    runs = list(comparison.runs(watch, log))
    if comparison.folder is not None:
        write_comparison(comparison.folder, comparison.results([run.result for run in runs]))
    return runs


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
        watch: see `Watcher`.
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


DEMO_METHODS = ("majority", "local", "fedavg", "fedpub", "quilt")
# Every method runs with its defaults but for these of FED-PUB: with the paper's similarity and tau of 3 all clients' models
# become alike, and a figure shows nothing. Validation over three seeds: 70.0 with tau=10 alone, 70.8 with both.
DEMO_SETTINGS = {"tau": 10.0, "contrast": "centred"}


def demo(
    out: Path | None,
    seeds: Sequence[int],
    rounds: int | None = None,
    watch: Watcher | None = None,
    on_folder: Callable[[Path], None] | None = None,
) -> tuple[Path, list[dict[str, Any]], list[Path]]:
    """Compare five methods on patchwork, whose natural clients are of three families.

    `out` None takes the first free folder of demo, demo-2, ...; see `compare_to_folder`.

    Returns:
        The folder, the results, and the figures of the similarity between clients that FED-PUB found.
    """
    options = {
        "dataset": "patchwork",
        "partition": "natural",
        "seeds": list(seeds),
        "rounds": rounds,
        "settings": DEMO_SETTINGS,
    }
    folder, results = compare_to_folder(
        DEMO_METHODS, options, out, watch, new_folder=(Path("."), "demo"), on_folder=on_folder
    )
    return folder, results, draw_similarity(read_run(folder / "fedpub"), folder)


def resume_comparison(
    path: str | os.PathLike[str], watch: Watcher | None = None, log: str | Sequence[str] = (), anyway: bool = False
) -> list[dict[str, Any]]:
    """Resume a comparison from its folder: runs that began go on, the others start; returns the results. See `resume`."""
    check_loggers(log)
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
    path: str | os.PathLike[str], watch: Watcher | None = None, log: str | Sequence[str] = (), anyway: bool = False
) -> Run:
    """Resume a run that was stopped; a finished run is returned as it is.

    Loggers in `log` get all rounds, also those of seeds that were done before, where they do not have them yet.

    A run seals its graph, partition, split, options and versions when it begins. Where one of them changed since, the error
    says which, and nothing is trained. With `anyway` the run goes on with other versions of the packages, with more rounds or
    seeds or another patience in its config.json, or without a seal where an earlier version began it; never with another
    graph, partition, split or other settings.
    """
    return resume_run(Path(path), watch, log, anyway)


def _path(out: str | os.PathLike[str] | None) -> Path | None:
    return None if out is None else Path(out)
