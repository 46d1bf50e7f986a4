"""A run carried out, seed after seed: train what is not done yet, read what is, and write what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedquilt.common.version import VERSION
from fedquilt.devices.allocator import keep_freed_memory
from fedquilt.export.conversion import constants_of, has_constants
from fedquilt.export.personal import training_facts
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.protocol import Protocol
from fedquilt.loggers.base import check_loggers
from fedquilt.loggers.journal import Journal
from fedquilt.methods.base import Method
from fedquilt.runs.config import RunConfig
from fedquilt.runs.finished import Run
from fedquilt.runs.folder import RunFolder, SeedFolder
from fedquilt.runs.resolve import GIVEN, ResolvedRun
from fedquilt.runs.result import build_result, group
from fedquilt.scenarios.newcomers import FrozenServer
from fedquilt.training.loop import Record, Training

# Called with (config, seed, rounds) when a seed starts; gives what to call with each round's record.
Watcher = Callable[[RunConfig, int, int], Callable[[Record], None]]
GRAPH_FILE = "graph.npz"  # where the run folder keeps a graph that was given as an object


def execute_run(
    config: RunConfig,
    out: Path | None,
    given: tuple[Graph, Protocol] | None = None,
    watch: Watcher | None = None,
    unnamed: bool = False,
    on_folder: Callable[[Path], None] | None = None,
    log: str | Sequence[str] = (),
) -> Run:
    """Train all seeds of a run: in `out`, in a new folder under runs/ (`unnamed`), or in memory only.

    `on_folder` is told the folder as soon as it can be resumed. For `log` see `fedquilt.run`.
    """
    names = check_loggers(log)
    resolved = ResolvedRun(config, given)  # everything that can be wrong is found before a folder is made
    if out is None and not unnamed:
        with worker_cluster(config):
            return run_seeds(resolved, None, watch, names)
    folder = create_folder(resolved, out, given)
    if on_folder is not None:
        on_folder(folder.path)
    with folder.lock(), worker_cluster(config):
        return run_seeds(resolved, folder, watch, names)


def create_folder(resolved: ResolvedRun, out: Path | None, given: tuple[Graph, Protocol] | None = None) -> RunFolder:
    """Make a run folder with its config.json, and the graph where it was given as an object; `out` None: under runs/."""
    folder = RunFolder.create(out, resolved.config.name)
    if resolved.config.dataset == GIVEN and given is not None:
        write_npz(given[0], folder.path / GRAPH_FILE)
    folder.config = resolved.config.model_dump() | {
        "resolved": resolved.facts(),
        "versions": {"fedquilt": VERSION, "torch": torch.__version__, "numpy": np.__version__},
    }
    return folder


def worker_cluster(config: RunConfig) -> AbstractContextManager[None]:
    """The Ray cluster of a run's workers, for the time of a block; nothing where the run has no workers."""
    if config.workers is None:
        return nullcontext()
    from fedquilt.training.engines.ray_workers import cluster

    return cluster()


def run_seeds(experiment: ResolvedRun, folder: RunFolder | None, watch: Watcher | None, log: Sequence[str] = ()) -> Run:
    """Every seed of a run: those that are done in `folder` are read, the others are trained; `log` names loggers."""
    keep_freed_memory()
    config = experiment.config
    assert config.rounds is not None
    out = Run(result={}, folder=None if folder is None else folder.path)
    journal = Journal(log, experiment, folder)
    summaries = []
    for seed in config.seeds:
        place = None if folder is None else folder.seed(seed)
        if place is None or not place.done:
            on_round = watch(config, seed, 1 if experiment.method.single_round else config.rounds) if watch else None
            with journal.seed(seed, on_round) as entry:
                summary = entry.summary = _train_seed(experiment, seed, place, entry.round, out)
        else:
            summary = place.summary or {}
            read_seed(place, seed, experiment.device, out)
            journal.catch_up(seed, out.records[seed], summary)
        summaries.append(summary)
    out.result = build_result(config.model_dump() | {"dataset": experiment.label}, summaries)
    if folder is not None and folder.result != out.result:
        folder.result = out.result
    return out


def read_seed(place: SeedFolder, seed: int, device: torch.device, out: Run, models: bool = True) -> None:
    """What a finished seed left in its folder, added to `out`; without `models` where clients have theirs with them."""
    out.records[seed] = place.records()
    if models:
        out.models[seed], out.facts[seed] = place.load_models()
    arrays = place.load_arrays("similarity") or {}
    out.similarities[seed] = {int(name): array for name, array in arrays.items()}
    out.findings[seed] = place.load_arrays("findings") or {}
    server = place.load_server()
    if server is not None:
        out.servers[seed] = FrozenServer.restored(*server, device)


def _train_seed(
    experiment: ResolvedRun,
    seed: int,
    place: SeedFolder | None,
    on_round: Callable[[Record], None] | None,
    out: Run,
) -> dict[str, Any]:
    """Train one seed, add what came of it to `out`, and write it to `place`; the seed's summary."""
    training = experiment.training(seed, place, on_round)
    progress = training.run()
    best = progress.best
    summary = progress.summary(seed, experiment.config.metric) | {
        "recorded": training.recorded,
        "clients_left_out": sum(value is None for value in best.clients_test),
    }
    if training.protection is not None:
        summary |= {"epsilon": training.protection.spent(progress.next_round - 1), "dp": training.protection.facts()}
    out.records[seed] = training.records
    out.models[seed] = best.models
    out.facts[seed] = _model_facts(experiment, training.method, best.round)
    out.similarities[seed] = {round: s.cpu().numpy() for round, s in training.similarities.items()}
    out.findings[seed] = {name: found.numpy() for name, found in training.findings.items()}
    if experiment.method.admits:
        out.servers[seed] = experiment.server(training)
    summary |= _apart(experiment, training, out.servers.get(seed))
    if place is not None:
        _write_seed(experiment, seed, place, out)
        place.finish(summary)
    return summary


def _model_facts(experiment: ResolvedRun, method: Method, best_round: int) -> dict[str, Any]:
    """What one needs to know to use the models of a seed (see `fedquilt.export`)."""
    clients = experiment.clients(method.context.seed)[: method.context.clients] if has_constants(method) else []
    return training_facts(method, experiment.protocol.normalise_features, experiment.graph.class_names) | {
        "round": best_round,
        "constants": [constants_of(method, client) for client in clients],
    }


def _write_seed(experiment: ResolvedRun, seed: int, place: SeedFolder, out: Run) -> None:
    """What `read_seed` reads, beside the records, which training wrote."""
    place.save_models({name: tensor.cpu() for name, tensor in out.models[seed].items()}, out.facts[seed])
    if out.similarities[seed]:
        place.save_arrays("similarity", {str(round): array for round, array in out.similarities[seed].items()})
    if out.findings[seed]:
        place.save_arrays("findings", out.findings[seed])
    if seed in out.servers:
        place.save_server(out.servers[seed].lasting, out.servers[seed].facts())
    place.save_arrays("split-and-partition", _who_had_what(experiment, seed))


def _apart(experiment: ResolvedRun, training: Training, server: FrozenServer | None) -> dict[str, Any]:
    """What a summary says of groups of clients: honest and malicious ones, those that trained and new ones."""
    config, context, tests = experiment.config, training.method.context, training.progress.best.clients_test
    groups: dict[str, Any] = {}
    said: dict[str, Any] = {"groups": groups}
    if training.attack is not None:
        for name, lies in (("honest", False), ("malicious", True)):
            groups[name] = group([t for m, t in enumerate(tests) if (m in training.attack.malicious) == lies])
    if config.hold_out_clients and server is not None:
        admission = server.admit(experiment.clients(context.seed)[context.clients :], config.cohort_size)
        groups |= {"trained": group(tests), "new": group(admission.test)}
        said["admission"] = {
            "clients_val": admission.val,
            "clients_test": admission.test,
            "bytes_up": admission.bytes_up,
            "bytes_down": admission.bytes_down,
        }
    return said if groups else {}


def _who_had_what(experiment: ResolvedRun, seed: int) -> dict[str, np.ndarray]:
    """The nodes of the clients that trained, one after the other, how many each had and of which classes, and the split.

    Where clients were held out, theirs as well, and all clients' numbers in the cut.
    """
    partition, split = experiment.cut(seed)
    order = experiment.order(seed, partition.clients)
    trained = experiment.context(seed).clients
    held = [partition.nodes[m] for m in order]
    sizes = partition.sizes[order]
    arrays = {
        "nodes": np.concatenate(held[:trained]),
        "sizes": sizes[:trained],
        "split": split,
    }
    holdings = experiment.task.holdings(experiment.graph, partition)
    arrays |= {name: rows[order][:trained] for name, rows in holdings.items()}
    if trained < len(order):
        arrays |= {
            "new_nodes": np.concatenate(held[trained:]),
            "new_sizes": sizes[trained:],
            "numbers": np.array(order),
        }
    return arrays
