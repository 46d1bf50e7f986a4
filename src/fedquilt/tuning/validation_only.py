"""Train without test labels: a search sees validation metrics only."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.devices.device import using_threads
from fedquilt.devices.threads import use_available_cpus
from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.runs.run_threads import run_threads
from fedquilt.training.smaller_cohorts import reporting_once, with_smaller_cohorts


class ValidationOnlyRun(ResolvedRun):
    """A resolved run whose clients have no labels of test nodes, so that no test metric can be computed."""

    def clients(self, seed: int) -> list[Client]:
        """Return the clients of a seed; a test node has no label and is in no part of the split."""
        return [self.task.without_test(client) for client in super().clients(seed)]

    def with_settings(self, asked: RunConfig, settings: Mapping[str, Any]) -> ValidationOnlyRun:
        """Return this run with other settings of the method; both share the graph, the partitions and the splits.

        `asked` is the configuration as the user gave it: options that it does not set may depend on the settings.
        """
        config = asked.model_copy(update={"settings": {**asked.settings, **settings}})
        method = self.method_of(config)
        other = copy(self)
        other.settings = method.settings
        other.config = self.config.model_copy(update={"settings": config.settings, "epochs": method.context.epochs})
        return other

    def check_validation(self, seed: int) -> None:
        """Refuse a partition in which no client has validation nodes on which the metric is defined."""
        context = self.context(seed)
        cohort = Cohort(self.clients(seed)[: context.clients])
        outputs = torch.zeros(cohort.rows, context.outputs)
        # Whether a metric is defined depends on the nodes, not on a model's outputs.
        if self.task.metric(context.metric).function(cohort, outputs, "val").isnan().all():
            raise FedquiltError(
                f"No client has a validation node on which {self.config.metric} is defined; choose another split."
            )


def train(run: ValidationOnlyRun, seed: int, on_round: Callable[[int, float | None], None]) -> None:
    """Train one seed. Call `on_round` with each round and its validation metric in percent, None if it was not evaluated.

    An exception in `on_round` ends the training.
    """
    # Free the previous training: it and its CUDA graphs reference each other and occupy memory of the accelerator.
    gc.collect()
    report = reporting_once(lambda record: on_round(record["round"], record.get("val")))

    def train_in_cohorts(size: int | None) -> None:
        run.cohort_size = size
        run.training(seed, on_round=report).run()

    use_available_cpus()
    with using_threads(run_threads(run)):
        with_smaller_cohorts(train_in_cohorts, run.cohort_size, run.largest_cohort(seed))


@contextmanager
def frozen_garbage_collection() -> Iterator[None]:
    """Exclude all existing objects from garbage collection for a block, so that each collection in it is fast."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
