"""Quilt with several views on small clients, and rounds that drop views early."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from fedquilt.cohort.client import Client
from fedquilt.methods import base_votes
from fedquilt.methods.quilt import Quilt
from fedquilt.nn.views import prefix_of
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.federations import make_method, make_task, make_training, ragged_clients

WHO = torch.arange(5)
NAMES = ["mlp", "filter", "gpr", "sage"]
WITH_MASKS = {"masks": True, "views": ",".join(NAMES), "feature_length": 0.0, "weight_decay": 0.0}
LARGER = (40, 36, 44, 38, 42)


def make_quilt(
    clients: Sequence[Client] | None = None, epochs: int = 1, averaging: Any = None, **settings: Any
) -> Quilt:
    """With masks, and without what else its defaults have had since, unless `settings` say otherwise."""
    clients = clients or ragged_clients()
    rule = {} if averaging is None else {"averaging": averaging}
    method = make_method("quilt", clients, make_task(clients, epochs=epochs), **rule, **WITH_MASKS | settings)
    assert isinstance(method, Quilt)
    return method


def trained(method: Quilt, rounds: int, clients: Sequence[Client] | None = None, **options: Any) -> Training:
    training = make_training(method, clients or ragged_clients(), Plan(rounds, **options))
    training.run()
    return training


def views_in(message: dict[str, Any]) -> list[str]:
    return [view for view in NAMES if any(prefix_of(view) in name for name in message)]


@contextmanager
def dropping_early() -> Iterator[None]:
    """Views are dropped before rounds 2 and 4."""
    with mock.patch.object(base_votes, "DROPS", (2, 4)):
        yield
