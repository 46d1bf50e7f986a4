"""Which clients take part: in a round, or in a group that a scenario sets apart."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError


def participants(seed: int, round: int, clients: int, share: float) -> Tensor:
    """Who takes part in a round: [n] client numbers in rising order, n = ceil(share * clients)."""
    count = max(1, math.ceil(share * clients - 1e-9))
    if count >= clients:
        return torch.arange(clients)
    chosen = numpy_stream(seed, "server", "participants", round).choice(clients, count, replace=False)
    return torch.from_numpy(chosen).sort().values


def some_clients(seed: int, clients: int, share: float, *owner: str) -> Tensor:
    """A group of the clients, drawn for `owner`: [n] numbers in rising order, n = round(share * clients).

    At least one client is in it and at least one is not.
    """
    if clients < 2:
        raise FedquiltError(
            "A single client cannot be parted into two groups; use more clients, and no attack or held-out clients."
        )
    count = min(max(1, round(share * clients)), clients - 1)
    return torch.from_numpy(numpy_stream(seed, *owner).choice(clients, count, replace=False)).sort().values
