"""Models evaluated on graphs that they were not trained on: FED-PUB's Oracle (Table 12) and neighbouring clients (Figure 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import State
from fedquilt.methods.settings import resolve_settings
from fedquilt.partition.statistics import statistics
from fedquilt.runs.config import RunConfig
from fedquilt.runs.finished import Run
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.tasks.metric import Part
from fedquilt.training.round_result import mean


def whole(config: RunConfig) -> RunConfig:
    """The run that trains the Oracle: the same graph and split, one client that holds everything, missing edges included."""
    return config.model_copy(update={"partition": "disjoint", "clients": 1, "sizes": None})


def check_split(config: RunConfig) -> None:
    """Refuse an Oracle that would be trained on nodes that are for testing at the clients.

    A split is drawn again until it suits the clients, where the run says so, and so depends on the cut.
    """
    (seed,) = config.seeds
    if not np.array_equal(ResolvedRun(config).cut(seed)[1], ResolvedRun(whole(config)).cut(seed)[1]):
        raise FedquiltError(
            "The whole graph is split otherwise than its clients are; leave out min_train, or use disjoint."
        )


def at_clients(config: RunConfig, trained: Run) -> dict[str, float | None]:
    """val and test in percent, means over the clients of `config`, of the one model in `trained` on their own subgraphs.

    Which round counts was decided by validation on the whole graph.
    """
    experiment = ResolvedRun(config)
    (seed,) = config.seeds
    clients = experiment.clients(seed)
    models = {
        name: tensor.expand(len(clients), *tensor.shape[1:]).contiguous()
        for name, tensor in trained.models[seed].items()
    }
    return _evaluated(experiment, models, clients)


def at_neighbours(experiment: ResolvedRun, trained: Run) -> float | None:
    """test in percent of each client's model at the client with which it misses most edges, the first of several; the mean."""
    (seed,) = experiment.config.seeds
    between = statistics(experiment.graph, experiment.cut(seed)[0]).missing_between.toarray()
    np.fill_diagonal(between, -1)
    clients = experiment.clients(seed)
    nearest = [clients[number] for number in between.argmax(axis=1)]
    return _evaluated(experiment, trained.models[seed], nearest)["test"]


def _evaluated(experiment: ResolvedRun, models: State, clients: Sequence[Client]) -> dict[str, float | None]:
    """val and test in percent, means over clients: model m of `models` [M, ...] at client m of `clients`."""
    config = experiment.config
    context = experiment.context(config.seeds[0])
    method = experiment.method(*resolve_settings(experiment.method, context, config.settings, config.epochs))
    cohort = Cohort([replace(client, id=place) for place, client in enumerate(clients)], experiment.device)
    metric = experiment.task.metric(context.metric)
    with torch.no_grad():
        here = {name: tensor.to(experiment.device) for name, tensor in models.items()}
        outputs = method.logits(here, cohort)
        parts: tuple[Part, ...] = ("val", "test")
        return {part: metric.scale * float(mean(metric.function(cohort, outputs, part))) for part in parts}
