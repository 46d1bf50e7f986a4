"""What a search may see of a training: validation metrics, round by round. Nothing of the test nodes gets this far."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from fedquilt.cohort.client import Client
from fedquilt.errors import FedquiltError
from fedquilt.graphs.split import NONE, TEST, VAL
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun


class Blind(ResolvedRun):
    """An experiment whose clients do not know the labels of their test nodes, so that no test metric exists."""

    def clients(self, seed: int) -> list[Client]:
        """The clients of a seed; a test node has no label and is in no part."""
        return [_without_test(client) for client in super().clients(seed)]

    def with_settings(self, asked: RunConfig, settings: Mapping[str, Any]) -> Blind:
        """This experiment with other settings of the method; the graph, the cuts and the splits are shared.

        `asked` is the configuration as the user gave it: what it leaves open may follow from the settings.
        """
        config = asked.model_copy(update={"settings": {**asked.settings, **settings}})
        method = self.method_of(config)
        other = copy(self)
        other.settings = method.settings
        other.config = self.config.model_copy(update={"settings": config.settings, "epochs": method.context.epochs})
        return other

    def check_validation(self, seed: int) -> None:
        """Refuse a cut in which no client can be validated, before anything trains."""
        two = self.config.metric == "auc"
        trained = self.clients(seed)[: self.context(seed).clients]
        classes = (np.unique(c.graph.y[c.split == VAL]).size for c in trained)
        if max(classes, default=0) < (2 if two else 1):
            raise FedquiltError(
                f"No client has a validation node on which {self.config.metric} is defined; choose another split."
            )


def validations(experiment: Blind, seed: int, see: Callable[[int, float | None], None]) -> None:
    """Train one seed; `see` is told each round and its validation metric in percent, None where nothing was evaluated.

    What `see` raises ends the training.
    """
    # Of the training before: it and its recorded rounds hold each other, and with them the memory of an accelerator.
    gc.collect()
    experiment.training(seed, on_round=lambda record: see(record["round"], record.get("val"))).run()


@contextmanager
def old_memory_set_apart() -> Iterator[None]:
    """For a block of trainings: what is there already is not looked through for garbage again and again."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _without_test(client: Client) -> Client:
    test = client.split == TEST
    graph = replace(client.graph, y=np.where(test, -1, client.graph.y))
    return replace(client, graph=graph, split=np.where(test, NONE, client.split))
