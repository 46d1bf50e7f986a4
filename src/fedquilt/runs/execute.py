"""Execute a run: make or open its folder, train each seed that is not done, read each that is, and write the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from fedquilt.common.registry import load_plugins
from fedquilt.devices.allocator import keep_freed_memory
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.protocol import Protocol
from fedquilt.loggers.base import check_loggers
from fedquilt.loggers.run_loggers import RunLoggers
from fedquilt.methods.settings import as_dict
from fedquilt.runs.callbacks import Callbacks, Watcher, callbacks_of
from fedquilt.runs.config import GIVEN, GRAPH_FILE, RunConfig
from fedquilt.runs.finished import Run, read_seed
from fedquilt.runs.folder import RunFolder, SeedFolder
from fedquilt.runs.ground import cut_differences, cut_of, graph_differences, ground_differences, ground_of
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.runs.result import build_result
from fedquilt.runs.seal import (
    ACCEPTABLE,
    Facts,
    config_differences,
    mapping,
    plugin_differences,
    refuse,
    renewed,
    seal_of,
    seal_of_earlier,
    size_differences,
    unsealed,
    version_differences,
    versions,
)
from fedquilt.runs.seed_training import STOPPED_AFTER, train_seed
from fedquilt.training.stop import StopRun

__all__ = ["Watcher"]
LOGS = "logs"  # the folder of the loggers: in the run folder, or in the working folder for a run in memory


def execute_run(
    config: RunConfig,
    out: Path | None = None,
    given: tuple[Graph, Protocol] | None = None,
    watch: Watcher | None = None,
    *,
    new_folder: bool = False,
    on_folder: Callable[[Path], None] | None = None,
    log: str | Sequence[str] = (),
    ground: Facts | None = None,
) -> Run:
    """Execute a run in the folder `out`, or in memory where that is None.

    Args:
        config: what to run.
        out: the folder to write; it must be new or empty.
        given: the graph, where it is loaded already; `config.dataset` is `GIVEN` where it has neither a name nor a path.
        watch: callbacks; see `fedquilt.runs.callbacks`.
        new_folder: where `out` is None, write to a new folder under runs/.
        on_folder: called with the folder as soon as the run can be resumed from it.
        log: names of loggers; see `fedquilt.loggers`.
        ground: the seal of the comparison that the run is part of; refused where the graph or the cut changed since.
    """
    loggers, watch = check_loggers(log), callbacks_of(watch)
    # Finds what is wrong with the run before a folder is made.
    resolved = _resolved(config, given, out.parent if out is not None else Path(), ground, what="comparison")
    if ground is not None and out is not None:
        refuse(out.parent, ground_differences(ground, resolved), what="comparison")
    if out is None and not new_folder:
        with worker_cluster(config):
            run = run_seeds(resolved, None, watch, loggers)
        run.origin = resolved.config, given
        return run
    resolved.announce(config.seeds[0])  # nothing is written where it cannot fit
    folder = create_folder(resolved, out, given)
    if on_folder is not None:
        on_folder(folder.path)
    with folder.lock(), worker_cluster(config):
        return run_seeds(resolved, folder, watch, loggers)


def create_folder(resolved: ResolvedRun, out: Path | None, given: tuple[Graph, Protocol] | None = None) -> RunFolder:
    """Make a run folder with its seal and its config.json: `out`, or where that is None a new one under runs/.

    A graph that was given as an object is stored beside config.json, and `resolved.config.dataset` becomes its path.
    """
    asked = resolved.config

    def fill(folder: Path, place: Path) -> None:
        if asked.dataset == GIVEN and given is not None:
            resolved.config = asked.model_copy(update={"dataset": save_graph(folder, place, given[0])})
        config = resolved.config.model_dump() | {"resolved": resolved.facts(), "versions": versions()}
        made = RunFolder(folder)
        made.seal = seal_of(config, ground_of(resolved))
        made.config = config

    return RunFolder.create(out, asked.name, fill=fill)


def save_graph(folder: Path, place: Path, graph: Graph) -> str:
    """Keep a copy of a run's graph in its folder; returns the absolute path that it has once the folder is at `place`."""
    write_npz(graph, folder / GRAPH_FILE, private=True)
    return str(place.resolve() / GRAPH_FILE)


def resume_run(
    path: Path,
    watch: Watcher | None = None,
    log: str | Sequence[str] = (),
    anyway: bool = False,
    ground: Facts | None = None,
    plugins: Sequence[str] = (),
) -> Run:
    """Resume the run in a folder; seeds that are done are read, so a finished run is returned as it is.

    Refused where the run would go on with something else than it began with; see `fedquilt.runs.seal`. With `anyway` it goes on
    with other versions of the packages, with more rounds or seeds, or without a seal. For `ground` see `execute_run`.
    `plugins` are files that the user names: they take the place of the run's own of the same names.
    """
    loggers, watch = check_loggers(log), callbacks_of(watch)
    folder = RunFolder.open(path)
    folder.check_not_of_sites()
    with folder.lock():
        folder.sweep()
        name_plugins(folder, plugins)
        accepted = check_config(folder, ACCEPTABLE if anyway else ())
        config = folder.run_config
        with worker_cluster(config):
            resolved = _resolved(config, None, folder.path, folder.seal or ground)
            check_ground(folder, resolved, accepted, ground)
            return run_seeds(resolved, folder, watch, loggers)


def name_plugins(folder: RunFolder, named: Sequence[str]) -> None:
    """Load the plug-ins that the user names for a resume, and write where they are now to config.json."""
    if not named:
        return
    config = folder.config
    listed = config.get("plugins") or []
    now = {Path(path).name: path for path in load_plugins(named, named=True)}
    for name in now:
        if name not in [Path(path).name for path in listed]:
            raise FedquiltError(f"The run in {folder.path} has no plug-in called {name}; leave it out.")
    folder.config = config | {"plugins": [now.get(Path(path).name, path) for path in listed]}


def _resolved(
    config: RunConfig, given: tuple[Graph, Protocol] | None, place: Path, began: Facts | None, what: str = "run"
) -> ResolvedRun:
    """Resolve a run; where that fails because its graph is another one than it began with, the error names the graph."""
    try:
        return ResolvedRun(config, given)
    except FedquiltError:
        if began is not None:
            refuse(place, graph_differences(began, config, given), what=what)
        raise


def check_config(folder: RunFolder, accept: Collection[str] = ()) -> list[str]:
    """Refuse a config.json or versions that are not those of the run; returns the differences that were accepted.

    A run of which nothing is left to train is read by any version.
    """
    seal, stored, done = folder.seal, folder.config, folder.done
    left = any(seed not in done for seed in stored.get("seeds", []))
    found = [] if seal is None else config_differences(seal, stored, done)
    if left and seal is not None:
        found += plugin_differences(seal, stored)
    if left:
        found += version_differences(seal or seal_of_earlier(stored))
        found += [unsealed()] if seal is None else []
    return refuse(folder.path, found, accept)


def check_ground(
    folder: RunFolder, resolved: ResolvedRun, accepted: Sequence[str] = (), ground: Facts | None = None
) -> None:
    """Refuse to train on another graph, partition or split than the run began with, and seal what was accepted."""
    seal, config = folder.seal, folder.config
    if any(not folder.seed(seed).done for seed in resolved.config.seeds):
        for began in (seal, ground):
            refuse(folder.path, [] if began is None else ground_differences(began, resolved))
        if seal is None:  # there is no more to compare than the sizes of the graph
            refuse(
                folder.path, size_differences(mapping(config.get("resolved")).get("graph"), resolved.facts()["graph"])
            )
            seal = seal_of(config, ground_of(resolved))
    if accepted and seal is not None:
        folder.seal = renewed(seal, config, accepted)


def worker_cluster(config: RunConfig) -> AbstractContextManager[None]:
    """Start the cluster of the run's worker processes for a `with` block; nothing where the run has no workers."""
    if config.workers is None:
        return nullcontext()
    from fedquilt.training.engines.ray_cluster import cluster

    return cluster()


def run_seeds(resolved: ResolvedRun, folder: RunFolder | None, watch: Watcher | None, log: Sequence[str] = ()) -> Run:
    """Train each seed that is not done in `folder`, read each that is, and build the result; `log` names loggers.

    Where a callback stops the run, the result is of what is trained so far and says so, and result.json is not written.
    """
    keep_freed_memory()
    config = resolved.config
    assert config.rounds is not None
    if folder is not None and any(not folder.seed(seed).done for seed in config.seeds):
        folder.drop_result()
        folder.drop_stopped()
    run = Run(result={}, folder=None if folder is None else folder.path)
    loggers = RunLoggers(
        log, config.name, config.model_dump(), as_dict(resolved.settings), lambda: _log_folder(folder, config.name)
    )
    told = Callbacks(watch, [loggers])
    summaries = []
    for seed in config.seeds:
        if told.stop is not None:
            break
        seed_folder = None if folder is None else folder.seed(seed)
        if seed_folder is None or not seed_folder.done:
            if folder is not None:
                _check_cut(folder, resolved, seed)
            summary = _train_told(resolved, seed, seed_folder, told, run)
            if summary is None:
                break
        else:
            summary = seed_folder.summary or {}  # verified, as the records are that `read_seed` reads
            read_seed(seed_folder, seed, resolved.device, run)
            loggers.catch_up(seed, run.records[seed], summary)
        summaries.append(summary)
    name = (folder.graph_name if folder is not None else None) or resolved.label
    options = config.model_dump() | {"dataset": name}
    if told.stop is not None and (len(summaries) < len(config.seeds) or STOPPED_AFTER in summaries[-1]):
        return _stopped(run, folder, options, summaries, told.stop)
    run.result = build_result(options, summaries)
    if folder is not None and folder.result != run.result:
        folder.result = run.result
    return run


def _train_told(
    resolved: ResolvedRun, seed: int, folder: SeedFolder | None, told: Callbacks, run: Run
) -> dict[str, Any] | None:
    """Train a seed and tell the callbacks of it; its summary, None where a callback stopped the run before it began."""
    config = resolved.config
    told.start(config, seed, resolved.total_rounds(seed))
    done = None
    try:
        if told.stop is not None:
            return None
        summary = train_seed(resolved, seed, folder, told.round, run)
        done = None if STOPPED_AFTER in summary else summary
    finally:
        told.end(done)
    return summary


def _stopped(
    run: Run, folder: RunFolder | None, options: dict[str, Any], summaries: Sequence[dict[str, Any]], stop: StopRun
) -> Run:
    """The run that a callback stopped, with the result of what is trained so far; its folder is marked as stopped."""
    trained = [summary for summary in summaries if summary["best_round"] >= 0]
    after = summaries[-1].get(STOPPED_AFTER) if summaries else None
    mark = {"seeds_begun": len(summaries), "rounds_of_last": after, "reason": stop.reason}
    if folder is not None:
        folder.stopped = mark
    if not trained:
        where = f"; go on with it: 'fedquilt resume {folder.path}'" if folder is not None else ""
        raise FedquiltError(f"A callback stopped the run before its first evaluation ({stop.reason}){where}.")
    run.result = build_result(options, trained) | {"stopped": mark}
    return run


def _check_cut(folder: RunFolder, resolved: ResolvedRun, seed: int) -> None:
    """Seal the partition and the split of a seed that begins; refuse to go on with others."""
    seal = folder.seal
    if seal is None:
        return
    refuse(folder.path, cut_differences(seal, resolved, seed))
    if str(seed) not in seal["cuts"]:
        folder.seal = seal | {"cuts": seal["cuts"] | {str(seed): cut_of(resolved, seed)}}


def _log_folder(folder: RunFolder | None, name: str) -> Path:
    return folder.path / LOGS if folder is not None else RunFolder.create(None, name, Path(LOGS)).path
