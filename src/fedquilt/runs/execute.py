"""Execute a run: make or open its folder, train each seed that is not done, read each that is, and write the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import torch

from fedquilt.common.version import VERSION
from fedquilt.devices.allocator import keep_freed_memory
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.protocol import Protocol
from fedquilt.loggers.base import check_loggers
from fedquilt.loggers.run_loggers import RunLoggers
from fedquilt.methods.settings import as_dict
from fedquilt.runs.compute_version import COMPUTE_VERSION
from fedquilt.runs.config import GIVEN, GRAPH_FILE, RunConfig
from fedquilt.runs.finished import Run, read_seed
from fedquilt.runs.folder import RunFolder
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.runs.result import build_result
from fedquilt.runs.seed_training import train_seed
from fedquilt.training.round_store import Record

# Called with (config, seed, rounds) when a seed starts; returns a function that is called with each round's record.
Watcher = Callable[[RunConfig, int, int], Callable[[Record], None]]

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
) -> Run:
    """Execute a run in the folder `out`, or in memory where that is None.

    Args:
        config: what to run.
        out: the folder to write; it must be new or empty.
        given: the graph, where it is loaded already; `config.dataset` is `GIVEN` where it has neither a name nor a path.
        watch: see `Watcher`.
        new_folder: where `out` is None, write to a new folder under runs/.
        on_folder: called with the folder as soon as the run can be resumed from it.
        log: names of loggers; see `fedquilt.loggers`.
    """
    loggers = check_loggers(log)
    resolved = ResolvedRun(config, given)  # finds what is wrong with the run before a folder is made
    if out is None and not new_folder:
        with worker_cluster(config):
            return run_seeds(resolved, None, watch, loggers)
    folder = create_folder(resolved, out, given)
    if on_folder is not None:
        on_folder(folder.path)
    with folder.lock(), worker_cluster(config):
        return run_seeds(resolved, folder, watch, loggers)


def create_folder(resolved: ResolvedRun, out: Path | None, given: tuple[Graph, Protocol] | None = None) -> RunFolder:
    """Make a run folder with its config.json: `out`, or where that is None a new one under runs/.

    A graph that was given as an object is stored beside config.json, and `resolved.config.dataset` becomes its path.
    """
    folder = RunFolder.create(out, resolved.config.name)
    if resolved.config.dataset == GIVEN and given is not None:
        resolved.config = resolved.config.model_copy(update={"dataset": save_graph(folder, given[0])})
    folder.config = resolved.config.model_dump() | {
        "resolved": resolved.facts(),
        "versions": {
            "fedquilt": VERSION,
            "computation": COMPUTE_VERSION,
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    }
    return folder


def save_graph(folder: RunFolder, graph: Graph) -> str:
    """Keep a copy of a run's graph in its folder; returns the absolute path of the copy."""
    path = folder.path.resolve() / GRAPH_FILE
    write_npz(graph, path, private=True)
    return str(path)


def resume_run(path: Path, watch: Watcher | None = None, log: str | Sequence[str] = ()) -> Run:
    """Resume the run in a folder; seeds that are done are read, so a finished run is returned as it is."""
    loggers = check_loggers(log)
    folder = RunFolder.open(path)
    folder.check_not_of_sites()
    config = folder.run_config
    with folder.lock(), worker_cluster(config):
        return run_seeds(ResolvedRun(config), folder, watch, loggers)


def worker_cluster(config: RunConfig) -> AbstractContextManager[None]:
    """Start the cluster of the run's worker processes for a `with` block; nothing where the run has no workers."""
    if config.workers is None:
        return nullcontext()
    from fedquilt.training.engines.ray_cluster import cluster

    return cluster()


def run_seeds(resolved: ResolvedRun, folder: RunFolder | None, watch: Watcher | None, log: Sequence[str] = ()) -> Run:
    """Train each seed that is not done in `folder`, read each that is, and build the result; `log` names loggers."""
    keep_freed_memory()
    config = resolved.config
    if folder is not None:
        _check_same_computation(folder, config)
    assert config.rounds is not None
    run = Run(result={}, folder=None if folder is None else folder.path)
    loggers = RunLoggers(
        log, config.name, config.model_dump(), as_dict(resolved.settings), lambda: _log_folder(folder, config.name)
    )
    summaries = []
    for seed in config.seeds:
        seed_folder = None if folder is None else folder.seed(seed)
        if seed_folder is None or not seed_folder.done:
            on_round = watch(config, seed, 1 if resolved.method.single_round else config.rounds) if watch else None
            with loggers.seed(seed, on_round) as seed_log:
                summary = seed_log.summary = train_seed(resolved, seed, seed_folder, seed_log.round, run)
        else:
            summary = seed_folder.summary or {}
            read_seed(seed_folder, seed, resolved.device, run)
            loggers.catch_up(seed, run.records[seed], summary)
        summaries.append(summary)
    run.result = build_result(config.model_dump() | {"dataset": resolved.label}, summaries)
    if folder is not None and folder.result != run.result:
        folder.result = run.result
    return run


def _check_same_computation(folder: RunFolder, config: RunConfig) -> None:
    """An error where a run has to be trained further that a fedquilt began which gives other numbers."""
    began = folder.config.get("versions", {}).get("computation", 1)  # versions were not declared before the second
    if began != COMPUTE_VERSION and not all(folder.seed(seed).done for seed in config.seeds):
        raise FedquiltError(
            f"The run in {folder.path} was begun by a fedquilt whose numbers differ from this one's, so that it cannot be "
            f"resumed; start it again with 'fedquilt run --config {folder.path / 'config.json'} --out' and a new folder."
        )


def _log_folder(folder: RunFolder | None, name: str) -> Path:
    return folder.path / LOGS if folder is not None else RunFolder.create(None, name, Path(LOGS)).path
