"""fedquilt from Python: `run`, `compare`, `resume`, which the command line calls too, and `load_run`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.datasets.load import load_graph
from fedquilt.devices.device import pick_device
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol
from fedquilt.loggers.base import check_loggers
from fedquilt.runs.compare import check_plan, plan
from fedquilt.runs.config import RunConfig
from fedquilt.runs.execute import GRAPH_FILE, Watcher, execute_run, read_seed, run_seeds, worker_cluster
from fedquilt.runs.finished import Run
from fedquilt.runs.folder import RunFolder
from fedquilt.runs.resolve import GIVEN, ResolvedRun

if TYPE_CHECKING:
    from torch_geometric.data import Data


def run(
    method: str = "quilt",
    dataset: str | os.PathLike[str] | Graph | Data = "patchwork",
    *,
    out: str | os.PathLike[str] | None = None,
    watch: Watcher | None = None,
    log: str | Sequence[str] = (),
    **options: Any,
) -> Run:
    """Train one method on one cut of one graph, for some seeds.

    Args:
        method: its name; see `fedquilt methods`.
        dataset: a name, a path, a `Graph`, or PyTorch Geometric's `Data`.
        out: folder to write to (must be new); None keeps everything in memory.
        watch: called when a seed starts; see `Watcher`.
        log: loggers, such as ["tensorboard"], which write to logs/ in `out`, else to a folder of the run's name in logs/ here.
        **options: any other field of `RunConfig`: clients, partition, seeds, rounds, settings, ...
    """
    name, given = _named(dataset)
    config = RunConfig.build({**options, "method": method, "dataset": name})
    return execute_run(config, None if out is None else Path(out), given, watch, log=log)


def compare(
    methods: Sequence[str],
    dataset: str | os.PathLike[str] | Graph | Data = "patchwork",
    *,
    out: str | os.PathLike[str] | None = None,
    watch: Watcher | None = None,
    log: str | Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Run]:
    """Train several methods on the same cuts and splits. `settings` go to every method that has them; see `run`.

    A setting that none of the methods knows is an error.
    """
    name, given = _named(dataset)
    configs = plan(methods, {**options, "dataset": name, "settings": dict(settings or {})})
    check_plan(configs, given)
    with worker_cluster(configs[0]):
        return [execute_run(c, None if out is None else Path(out) / c.method, given, watch, log=log) for c in configs]


def load_run(path: str | os.PathLike[str], device: str = "auto") -> Run:
    """A finished run from its folder; nothing is trained and no graph is needed. `device` is where it admits clients."""
    folder = RunFolder.open(Path(path))
    result = folder.result
    if result is None:
        _check_no_sites(folder)
        raise FedquiltError(f"The run in {path} is not done; go on with it: 'fedquilt resume {path}'.")
    out = Run(result, folder=folder.path)
    for seed in folder.config["seeds"]:
        read_seed(folder.seed(seed), seed, pick_device(device), out, models=not folder.of_sites)
    return out


def resume(path: str | os.PathLike[str], watch: Watcher | None = None, log: str | Sequence[str] = ()) -> Run:
    """Go on with a run that was killed; a run that is done is returned as it is.

    Loggers in `log` get all rounds, those of seeds that were done before as well where they have not had them.
    """
    names = check_loggers(log)
    folder = RunFolder.open(Path(path))
    _check_no_sites(folder)
    config = RunConfig.build({k: v for k, v in folder.config.items() if k in RunConfig.model_fields})
    given = load_graph(folder.path / GRAPH_FILE) if config.dataset == GIVEN else None
    with folder.lock(), worker_cluster(config):
        return run_seeds(ResolvedRun(config, given), folder, watch, names)


def _check_no_sites(folder: RunFolder) -> None:
    """Refuse to go on by ourselves with what only sites can do."""
    if folder.of_sites:
        raise FedquiltError(
            f"The run in {folder.path} is of sites, which train it: go on with the same 'flwr run' (out is {folder.path}), or "
            "'fedquilt rehearse' where it was one."
        )


def _named(dataset: str | os.PathLike[str] | Graph | Data) -> tuple[str, tuple[Graph, Protocol] | None]:
    """What a run calls its dataset, and the graph itself where that was given as an object."""
    if isinstance(dataset, str | os.PathLike):
        return os.fspath(dataset), None
    return GIVEN, load_graph(dataset)
