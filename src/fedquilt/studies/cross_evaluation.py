"""Evaluate models on graphs they were not trained on: FED-PUB's Oracle (Table 12) and neighbouring clients (Figure 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from fedquilt.cohort.client import Client, prepared_clients
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.graphs.preparation import Preparation
from fedquilt.methods.base import State
from fedquilt.partition.statistics import statistics
from fedquilt.runs.config import RunConfig
from fedquilt.runs.finished import Run
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.tasks.metric import Part
from fedquilt.training.round_result import mean


def whole_graph(config: RunConfig) -> RunConfig:
    """The run that trains the Oracle: the same graph and split, held by one client, with no edge missing."""
    return config.model_copy(update={"partition": "disjoint", "clients": 1, "sizes": None, "alpha": None})


def check_split(clients: ResolvedRun, whole: ResolvedRun) -> None:
    """Refuse an Oracle that would be trained on test nodes of the clients.

    With `min_train` a split is drawn again until it suits the clients, and so depends on the partition.
    """
    (seed,) = clients.config.seeds
    if not np.array_equal(clients.cut(seed)[1], whole.cut(seed)[1]):
        raise FedquiltError(
            "The whole graph is split otherwise than its clients are; leave out min_train, or use disjoint."
        )


def at_clients(clients: ResolvedRun, oracle: Run) -> dict[str, float | None]:
    """Validation and test metric in percent of the Oracle's one model, means over the clients' own subgraphs.

    The model is that of the best validation round on the whole graph; features are prepared as they were in its training.
    """
    (seed,) = clients.config.seeds
    (how,) = preparations_of_models(oracle, seed)
    raw = clients.raw_clients(seed)
    those = prepared_clients(raw, [how] * len(raw))
    models = {
        name: tensor.expand(len(those), *tensor.shape[1:]).contiguous() for name, tensor in oracle.models[seed].items()
    }
    return _evaluate(clients, models, those)


def at_neighbours(resolved: ResolvedRun, run: Run) -> float | None:
    """Mean test metric in percent of each client's model at its neighbour.

    The neighbour is the client with which it shares most missing edges, the first of several.
    """
    (seed,) = resolved.config.seeds
    between = statistics(resolved.graph, resolved.cut(seed)[0]).missing_between.toarray()
    np.fill_diagonal(between, -1)
    clients = resolved.raw_clients(seed)
    # A client's model has the client's network, wherever it is evaluated.
    pairs = zip(clients, between.argmax(axis=1), strict=True)
    nearest = [replace(clients[number], settings=own.settings) for own, number in pairs]
    nearest = prepared_clients(nearest, preparations_of_models(run, seed))  # a model takes what its own training took
    return _evaluate(resolved, run.models[seed], nearest)["test"]


def preparations_of_models(run: Run, seed: int) -> list[Preparation]:
    """How the features of a graph are prepared for each of a run's models."""
    facts, models = run.facts[seed], len(next(iter(run.models[seed].values())))
    found = facts.get("preparations") or [None] * models
    return [Preparation.restored(one, facts["task"]["features"]) for one in found]


def _evaluate(resolved: ResolvedRun, models: State, clients: Sequence[Client]) -> dict[str, float | None]:
    """Validation and test metric in percent, means over clients: model m of `models` [M, ...] at client m of `clients`."""
    config = resolved.config
    context = resolved.context(config.seeds[0])
    method = resolved.method(resolved.settings, context)
    cohort = Cohort([replace(client, id=place) for place, client in enumerate(clients)], resolved.device)
    metric = method.task.metric(context.metric)
    parts: tuple[Part, ...] = ("val", "test")
    with torch.no_grad():
        on_device = {name: tensor.to(resolved.device) for name, tensor in models.items()}
        found: dict[str, float | None] = {}
        outputs, last = torch.empty(0), None
        for part in parts:
            seen = method.task.seen(cohort, part)
            outputs = outputs if seen is last else method.logits(on_device, seen)
            found[part], last = metric.scale * float(mean(metric.function(cohort, outputs, part))), seen
        return found
