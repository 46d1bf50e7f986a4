"""Random numbers of clients, computed as a hash of (client, step, layer, position).

The hash takes a few integer operations and has no state. The numbers are the same on every device, in every cohort, and after
a resume.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.rows import Rows
from fedquilt.common.random_streams import derive

_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, as a signed 64-bit number
_MIX = (-4658895280553007687, -7723592293110705685)  # splitmix64's multipliers
_LOW = 0x7FEB352D  # lowbias32's multipliers
_HIGH = -2073254261  # 0x846CA68B
_LAYERS = 64  # the most layers in a step


def _mix64(x: Tensor) -> Tensor:
    """Apply splitmix64's finaliser to int64 (masks turn arithmetic shifts into logical ones)."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _MIX[0]
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _MIX[1]
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def _wrapped(number: int) -> int:
    """Return the signed 64-bit number that equals `number` modulo 2^64."""
    return (number + 2**63) % 2**64 - 2**63


class Placed(Protocol):
    """Rows that belong to clients: `client` [R] and `position` [R] within the client."""

    @property
    def client(self) -> Tensor:
        """[R] int64."""

    @property
    def position(self) -> Tensor:
        """[R] int64."""


class Places:
    """So many rows of each owner of a key, such as the server, or a client's features: a `Placed`."""

    def __init__(self, rows: int, device: torch.device, owners: int = 1) -> None:
        self.equal_length, self._device, self._owners = rows, device, owners

    @cached_property
    def position(self) -> Tensor:
        """[R] int64."""
        return torch.arange(self.equal_length, device=self._device).repeat(self._owners)

    @cached_property
    def client(self) -> Tensor:
        """[R] int64."""
        return torch.arange(self._owners, device=self._device).repeat_interleave(self.equal_length)


@dataclass(frozen=True)
class Draws:
    """The random numbers of one training step of a cohort.

    Attributes:
        keys: [M] int64, the random key of each client (see `client_keys`).
        step: the training step, counted from the step that the keys were advanced to (see `advanced`).
    """

    keys: Tensor
    step: int

    def words(self, rows: Placed, count: int, layer: int) -> Tensor:
        """Draw [R, count] int32 with 32 random bits each. A row's numbers depend only on its client and its position there."""
        low, high = self.keyed(layer)
        length = getattr(rows, "equal_length", None)
        if length:  # positions 0, 1, 2, ... at every client: one sum instead of a gather
            x = torch.arange(length * count, device=low.device, dtype=torch.int32) + low.unsqueeze(
                1
            )  # [M, length count]
            high = high.unsqueeze(1)
        else:
            column = torch.arange(count, device=low.device, dtype=torch.int32)
            x = (rows.position.to(torch.int32) * count + low[rows.client]).unsqueeze(1) + column
            high = high[rows.client].unsqueeze(1)
        x ^= (x >> 16) & 0xFFFF
        x *= _LOW
        x ^= high  # a second word, so that streams of clients and steps do not overlap
        x ^= (x >> 15) & 0x1FFFF
        x *= _HIGH
        x ^= (x >> 16) & 0xFFFF
        return x.view(-1, count)

    def keyed(self, layer: int) -> tuple[Tensor, Tensor]:
        """Compute the two words [M] int32 from which, with the position, a client's numbers in a layer are hashed."""
        key = _mix64(self.keys + _wrapped((self.step * _LAYERS + layer + 1) * _GOLDEN))
        return key.to(torch.int32), (key >> 32).to(torch.int32)

    def uniform(self, rows: Placed, width: int, layer: int) -> Tensor:
        """Draw [R, width] float32 numbers between 0 and 1; either may be drawn."""
        return self.words(rows, width, layer).float().mul_(2.0**-32).add_(0.5)

    def normal(self, rows: Placed, width: int, layer: int) -> Tensor:
        """Draw [R, width] float32 standard normal numbers, by the Box-Muller transform of uniform ones."""
        half = (width + 1) // 2
        uniform = self.uniform(rows, 2 * half, layer)
        radius = uniform[:, :half].clamp_min(2.0**-33).log_().mul_(-2.0).sqrt_()
        angle = uniform[:, half:] * (2.0 * math.pi)
        return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)[:, :width]

    def below(self, rows: Rows, limits: Tensor, count: int, layer: int) -> Tensor:
        """Draw [R, count] int64 from 0 to limit - 1, where `limits` [M] holds the limit of each client."""
        return (self.words(rows, count, layer) & 0x7FFFFFFF).long() % limits[rows.client].unsqueeze(1)


def advanced(keys: Tensor, clock: Tensor) -> Tensor:
    """Advance keys [M]: step e of the result is step clock + e of `keys`. CUDA graphs can change the tensor `clock` [M]."""
    return keys + clock * _wrapped(_LAYERS * _GOLDEN)


def client_keys(seed: int, cohort: Cohort) -> Tensor:
    """Return the random key of each client, [M] int64; it depends only on the seed and the client's id."""
    keys = [client.once(key_name(seed), partial(_client_key, seed)) for client in cohort.members]
    return torch.tensor(keys, dtype=torch.int64, device=cohort.device)


def key_name(seed: int) -> str:
    """Return the name under which a client stores its key of a seed (`Client.once`)."""
    return f"random key of seed {seed}"


def _client_key(seed: int, client: Client) -> int:
    return derive(seed, "client", client.id, "dropout")


def key_of_words(words: Tensor, layer: int) -> int:
    """Invert `Draws.keyed`: return the key for which `Draws(key, 0).keyed(layer)` gives these words, [2] int32."""
    low, high = words.tolist()
    x = (low & 0xFFFFFFFF) | (high & 0xFFFFFFFF) << 32
    # Undo splitmix64's finaliser: each of its three steps is a bijection on 64-bit numbers.
    for shift, factor in ((31, 1), (27, _MIX[1]), (30, _MIX[0])):
        x = shifted = x * pow(factor, -1, 2**64) % 2**64
        for _ in range(64 // shift):
            x = shifted ^ (x >> shift)
    return _wrapped(x - (layer + 1) * _GOLDEN)
