"""Draw clients at random: the participants of a round, or a group for a scenario."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError


def participants(seed: int, round: int, clients: int, share: float) -> Tensor:
    """The clients that take part in a round: [n] numbers in rising order, n = ceil(share * clients)."""
    count = max(1, math.ceil(share * clients - 1e-9))
    if count >= clients:
        return torch.arange(clients)
    chosen = numpy_stream(seed, "server", "participants", round).choice(clients, count, replace=False)
    return torch.from_numpy(chosen).sort().values


def some_clients(seed: int, clients: int, share: float, *owner: str) -> Tensor:
    """A random group of clients: [n] numbers in rising order, n = round(share * clients).

    At least one client is in the group and at least one is not. `owner` names the random stream, such as "attack".
    """
    if clients < 2:
        raise FedquiltError(
            "A single client cannot be parted into two groups; use more clients, and no attack or held-out clients."
        )
    count = min(max(1, round(share * clients)), clients - 1)
    return torch.from_numpy(numpy_stream(seed, *owner).choice(clients, count, replace=False)).sort().values
