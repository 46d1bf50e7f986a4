"""Train one seed of a run: its summary, its personal models and what else is kept of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from fedquilt.cohort.cohort import Cohort
from fedquilt.devices.device import using_threads
from fedquilt.devices.threads import use_available_cpus
from fedquilt.errors import DivergedError, MachineLimitError
from fedquilt.methods.base import Method
from fedquilt.methods.personal_model import CLIENT_SETTINGS, constants_of, training_facts
from fedquilt.runs.divergence import explained
from fedquilt.runs.finished import Run
from fedquilt.runs.folder import SeedFolder
from fedquilt.runs.machine import note_machine
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.runs.result import CLIENT_NAMES, RETRIED, group
from fedquilt.runs.retry import Retry, in_words, may_retry, smaller_steps
from fedquilt.runs.run_threads import run_threads
from fedquilt.scenarios.newcomers import FrozenServer
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.final_figures import FinalFigures, final_figures
from fedquilt.training.loop import Training
from fedquilt.training.round_store import Record
from fedquilt.training.smaller_cohorts import free_memory, reporting_once, with_smaller_cohorts

_log = logging.getLogger(__name__)
CONFUSION = "confusion"  # confusion.npz: every client's confusion matrix
STOPPED_AFTER = "stopped_after"  # in the summary of a seed that a callback stopped: the rounds that are done


def train_seed(
    resolved: ResolvedRun,
    seed: int,
    folder: SeedFolder | None,
    on_round: Callable[[Record], None] | None,
    run: Run,
) -> dict[str, Any]:
    """Train one seed, add its models and records to `run`, and write them to `folder`; returns the seed's summary.

    Of a seed that a callback stopped (`StopRun`) the folder has only records and a checkpoint, from which it can be resumed.
    """
    use_available_cpus()
    with using_threads(run_threads(resolved)):
        training, retried = _trained(resolved, seed, folder, on_round)
        if folder is not None:  # not before: a resume that is refused changes nothing
            note_machine(folder.path.parent, resolved.device)
    progress = training.progress
    best = progress.best
    summary = progress.summary(seed, resolved.config.metric) | {
        "recorded": training.captured,
        "clients_left_out": sum(value is None for value in best.clients_test),
    }
    if resolved.cohort_size != resolved.config.cohort_size:
        summary["cohort_size"] = resolved.cohort_size  # memory ran out with more clients at once
    if retried is not None:
        summary |= {RETRIED: in_words(retried.changed), "diverged": retried.why}
    if resolved.statistics_bytes:
        summary["statistics_bytes"] = resolved.statistics_bytes
    for transform in training.runner.upload_transforms:
        summary |= transform.summary_entries(progress.next_round)
    if names := resolved.client_names(seed):
        summary[CLIENT_NAMES] = names[: training.method.context.clients]
    run.records[seed] = training.records
    run.models[seed] = best.models
    run.facts[seed] = _model_facts(resolved, training.method, best.round)
    run.similarities[seed] = {round: s.cpu().numpy() for round, s in training.similarities.items()}
    run.findings[seed] = {name: found.numpy() for name, found in training.findings.items()}
    server = resolved.server(training)
    if server is not None:
        run.servers[seed] = server
        summary["server_bytes"] = server.bytes
    if not training.complete:
        return summary | {STOPPED_AFTER: progress.next_round}
    summary |= _client_groups(resolved, training, run.servers.get(seed))
    figures = _final_figures(resolved, training)
    summary |= figures.summary(resolved.graph.class_names)
    if folder is not None:
        _write_seed(resolved, seed, folder, run)
        if arrays := figures.arrays():
            folder.save_arrays(CONFUSION, arrays)
        folder.finish(summary)
    return summary


def _trained(
    resolved: ResolvedRun, seed: int, folder: SeedFolder | None, on_round: Callable[[Record], None] | None
) -> tuple[Training, Retry | None]:
    """The finished training of a seed, and its second try where the first diverged (`fedquilt.runs.retry`)."""
    retry = None if folder is None else folder.retry
    if retry is None:
        why = ""
        try:
            return _train_once(resolved, seed, folder, on_round), None
        except DivergedError as error:
            if not may_retry(resolved.config, resolved.settings):
                raise
            why = str(error)
        # Here the error is gone, and with it the frames that hold the tensors of the first try.
        retry = Retry(smaller_steps(resolved.settings), why)
        if folder is not None:
            folder.begin_again(retry)
        _log.warning("%s Seed %d is trained once more from the start, with %s.", why, seed, in_words(retry.changed))
        free_memory()
    asked = resolved.settings
    resolved.settings = replace(asked, **retry.changed)
    try:
        return _train_once(resolved, seed, folder, on_round), retry
    except DivergedError as error:
        again = f"seed {seed} was trained twice, also with {in_words(retry.changed)}"
        raise DivergedError(error.what, error.clients, f"{error.advice} ({again})") from error
    finally:
        resolved.settings = asked


def _train_once(
    resolved: ResolvedRun, seed: int, folder: SeedFolder | None, on_round: Callable[[Record], None] | None
) -> Training:
    """Train a seed to its end, in smaller cohorts where memory ran out."""
    report = reporting_once(on_round)

    def train(cohort_size: int | None) -> Training:
        resolved.cohort_size = cohort_size
        training = resolved.training(seed, folder, report)
        training.run()
        return training

    try:
        return with_smaller_cohorts(train, resolved.cohort_size, resolved.largest_cohort(seed))[0]
    except DivergedError as error:
        found = explained(error, resolved.clients(seed)[: resolved.context(seed).clients])
        if found is error:
            raise
        raise found from error


def _final_figures(resolved: ResolvedRun, training: Training) -> FinalFigures:
    """The test figures of the best models; nothing where there is no memory for them beside what the training holds."""
    engine, method, models = training.engine, training.method, training.progress.best.models

    def compute(size: int | None) -> FinalFigures:
        if isinstance(engine, InProcess) and size == resolved.cohort_size:
            cohorts: Iterable[Cohort] = engine.cohorts  # they are on the device already
        else:
            clients = resolved.clients(method.context.seed)[: method.context.clients]
            step = size or resolved.largest_cohort(method.context.seed)
            cohorts = (Cohort(clients[m : m + step], resolved.device) for m in range(0, len(clients), step))
        return final_figures(method, cohorts, models, resolved.config.precision)

    largest = resolved.largest_cohort(method.context.seed)
    try:
        return with_smaller_cohorts(compute, resolved.cohort_size, largest)[0]
    except MachineLimitError as error:
        _log.warning("The figures beside the metric are left out: %s", error)
        return FinalFigures()


def _model_facts(resolved: ResolvedRun, method: Method, best_round: int) -> dict[str, Any]:
    """The facts that `fedquilt.export` needs to use the models of a seed."""
    seed, trained, graph = method.context.seed, method.context.clients, resolved.graph
    owned = bool(resolved.config.client_settings)
    needed = method.saved_constants() or graph.edge_weights is not None
    clients = resolved.clients(seed)[:trained] if needed or owned else []
    return training_facts(
        method, resolved.protocol.normalise_features, graph.class_names, graph.feature_names, graph.encoding
    ) | {
        "round": best_round,
        "constants": [constants_of(method, client) for client in clients] if needed else [],
        # In the order of the models, too; none where no client has settings of its own.
        **({CLIENT_SETTINGS: [dict(client.settings) for client in clients]} if owned else {}),
        # In the order of the models; none where features are used as they are.
        "preparations": []
        if resolved.config.prepare == "none"
        else [how.facts() for how in resolved.preparations(seed)[:trained]],
    }


def _write_seed(resolved: ResolvedRun, seed: int, folder: SeedFolder, run: Run) -> None:
    """Write what `fedquilt.runs.finished.read_seed` reads; the records are there already, training wrote them."""
    folder.save_models({name: tensor.cpu() for name, tensor in run.models[seed].items()}, run.facts[seed])
    if run.similarities[seed]:
        folder.save_arrays("similarity", {str(round): array for round, array in run.similarities[seed].items()})
    if run.findings[seed]:
        folder.save_arrays("findings", run.findings[seed])
    if seed in run.servers:
        folder.save_server(run.servers[seed].lasting, run.servers[seed].facts())
    folder.save_arrays("split-and-partition", _split_and_partition(resolved, seed))


def _client_groups(resolved: ResolvedRun, training: Training, server: FrozenServer | None) -> dict[str, Any]:
    """The part of a summary about groups of clients: honest and malicious ones, trained and new ones."""
    config, context, tests = resolved.config, training.method.context, training.progress.best.clients_test
    groups: dict[str, Any] = {}
    summary: dict[str, Any] = {"groups": groups}
    for transform in training.runner.upload_transforms:
        for name, members in transform.groups(context.clients).items():
            groups[name] = group([tests[m] for m in members])
    if config.hold_out_clients and server is not None:
        newcomers = resolved.clients(context.seed)[context.clients :]
        admission, _ = with_smaller_cohorts(
            lambda size: server.admit(newcomers, size), resolved.cohort_size, len(newcomers)
        )
        groups |= {
            "trained": group(tests),
            "new": group(admission.test),
            "new without training": group(admission.test_untrained),
            "new alone": group(admission.test_alone),
        }
        summary["admission"] = {
            "clients_val": admission.val,
            "clients_test": admission.test,
            "clients_val_untrained": admission.val_untrained,
            "clients_test_untrained": admission.test_untrained,
            "clients_val_alone": admission.val_alone,
            "clients_test_alone": admission.test_alone,
            "epochs": admission.epochs,
            "bytes_up": admission.bytes_up,
            "bytes_down": admission.bytes_down,
        }
    return summary if groups else {}


def _split_and_partition(resolved: ResolvedRun, seed: int) -> dict[str, np.ndarray]:
    """The arrays of split-and-partition.npz.

    nodes [sum of sizes] and sizes [M]: the nodes of the M clients that trained, one client after the other. split [n]: the
    part of each node of the graph. Arrays of the task with leading axis M, such as class_counts [M, C]. Where clients were
    held out: new_nodes and new_sizes, theirs, and numbers: every client's number in the partition, those that trained first.
    """
    partition, split = resolved.cut(seed)
    order = resolved.order(seed, partition.clients)
    trained = resolved.context(seed).clients
    nodes = [partition.nodes[m] for m in order]
    sizes = partition.sizes[order]
    arrays = {
        "nodes": np.concatenate(nodes[:trained]),
        "sizes": sizes[:trained],
        "split": split,
    }
    holdings = resolved.task.holdings(resolved.graph, partition)
    arrays |= {name: rows[order][:trained] for name, rows in holdings.items()}
    if trained < len(order):
        arrays |= {
            "new_nodes": np.concatenate(nodes[trained:]),
            "new_sizes": sizes[trained:],
            "numbers": np.array(order),
        }
    return arrays
