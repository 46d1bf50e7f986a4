"""Differential privacy for uploads: each client's upload is clipped and noised as a whole before it leaves.

A client's upload is one vector: all numbers of all its tensors, in the order of their names, minus what the server knows
already (below). Its L2 norm is clipped to `clip`, and Gaussian noise of standard deviation noise * clip is added to
every entry. `fedquilt.privacy.accountant` computes the epsilon; `fedquilt docs privacy` states the adversary, and what is not
covered.

- *What the server knows already* is what it sent under the same name and in the same shape, or at first the common start that
  everybody draws from the seed. Only the difference is clipped, and the known part is added again after the noise: the server
  receives weights, as it would without protection, and the clip norm is spent on what training changed.
- *Counts* (`TensorSpec.count`: training nodes, evidence, nodes of each class) do not leave: a one is sent for each. Beside
  weights they would use up the clip norm, and noise would make them negative. So averages are plain ones.
- *Sparse* tensors are sent dense, since which entries are missing is information.
- What is not a finite number counts as no change.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from fedquilt.common.random_streams import torch_stream
from fedquilt.devices import offload
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Factored, Message, TensorSpec, Value, declared, dense
from fedquilt.privacy.accountant import affordable_uploads, noise_for, spent_epsilon

# Outside these ranges the accountant gives no answer.
Clip = Annotated[float, Field(ge=1e-9, le=1e9)]
Noise = Annotated[float, Field(ge=1e-3, le=1e6)]
Epsilon = Annotated[float, Field(ge=1e-6, le=1e6)]
Delta = Annotated[float, Field(ge=1e-100, lt=1)]
_ROUNDING = 1.0 - 1e-6  # so that a norm is at most `clip` after rounding, too
_GRID = 18  # what is sent is a multiple of the noise's standard deviation (its power of two) over two to this


class DpConfig(BaseModel):
    """How a client's uploads are protected.

    Attributes:
        clip: the largest L2 norm of an upload.
        noise: the noise's standard deviation over `clip`; None: as much as `epsilon` asks for over the planned rounds.
        delta: the chance that epsilon does not hold.
        epsilon: the budget: nothing is sent any more that would exceed it; None: no budget.
        report: whether the client's metrics and losses go to the coordinator all the same. They are not protected.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    clip: Clip
    noise: Noise | None = None
    delta: Delta = 1e-5
    epsilon: Epsilon | None = None
    report: bool = False

    @model_validator(mode="after")
    def _enough(self) -> DpConfig:
        if self.noise is None and self.epsilon is None:
            raise ValueError("give noise, or an epsilon from which it follows")
        return self

    def noise_over(self, rounds: int) -> float:
        """The noise: as configured, or the noise that spends `epsilon` in so many rounds."""
        if self.noise is not None:
            return self.noise
        assert self.epsilon is not None
        return noise_for(self.epsilon, self.delta, rounds)


class BudgetSpentError(FedquiltError):
    """Another upload would exceed the budget; nothing is sent."""


class Privatiser:
    """Protects uploads, of one client at its site or of many in a simulation.

    Args:
        config: how.
        rounds: for how many uploads of a client the noise is made, where `config` leaves that to the budget.
        seed: a simulation's seed, from which noise is drawn for (client, round), so that it can be done again and protects
            from nobody who knows the seed; None, for real sites: the system's secure randomness.
    """

    def __init__(self, config: DpConfig, rounds: int, seed: int | None = None) -> None:
        self.config, self.seed = config, seed
        self.noise = config.noise_over(rounds)

    def spent(self, uploads: int) -> float:
        """Epsilon after so many uploads of a client."""
        return spent_epsilon(self.noise, uploads, self.config.delta)

    def affords(self, most: int) -> int:
        """How many uploads of a client the budget allows, up to `most`."""
        if self.config.epsilon is None:
            return most
        return affordable_uploads(self.noise, self.config.epsilon, self.config.delta, most)

    @torch.no_grad()
    def applied(
        self,
        upload: Message,
        specs: Sequence[TensorSpec],
        round: int,
        senders: Sequence[int] = (0,),
        known: Mapping[str, Value] | None = None,
    ) -> Message:
        """The protected uploads [n, ...] of the clients `senders` [n]; the given ones are not changed.

        Args:
            upload: their uploads, unprotected.
            specs: what the method declared about its uploads.
            round: which round; each client's noise is drawn anew in each.
            senders: the clients' numbers.
            known: what the server knows already: what it sent in this round, or `Method.public_start` before it sent anything;
                one tensor for all senders or one each. Names and shapes that do not fit are left alone.
        """
        stacks = {name: dense(value) for name, value in sorted(upload.items())}
        counts = {name for name in stacks if (c := declared(specs, name)) is not None and c.count}
        out = {name: torch.ones_like(stack) if name in counts else _like(stack) for name, stack in stacks.items()}
        sent = [name for name in stacks if name not in counts]
        if sent:
            for place, client in enumerate(senders):
                base = {name: _known(known or {}, name, stacks[name], place) for name in sent}
                gap = torch.cat([_gap(stacks[name][place], base[name]) for name in sent])
                protected = self._protected(gap, client, round)
                for name, part in zip(sent, protected.split([stacks[n][place].numel() for n in sent]), strict=True):
                    row = part.view(stacks[name].shape[1:])
                    out[name][place] = row if (b := base[name]) is None else row + b
                    offload.release_pages(stacks[name][place], out[name][place])
        return {name: out[name] for name in upload}

    def _protected(self, vector: Tensor, client: int, round: int) -> Tensor:
        """One client's upload as one vector [P]: clipped and noised.

        It is computed in double precision and rounded to a grid before it is cast, so that the last bits of a number say
        nothing: noise that was rounded first takes other values where there was a change than where there was none.
        """
        deviation = self.noise * self.config.clip
        vector = torch.nan_to_num(vector.double(), nan=0.0, posinf=0.0, neginf=0.0)
        most = _ROUNDING * self.config.clip
        vector = vector * (most / torch.linalg.vector_norm(vector).clamp_min(most))
        if self.seed is None:
            drawn = secure_normal(vector.numel())
        else:
            stream = torch_stream(self.seed, "client", client, "privacy", round)
            drawn = torch.randn(vector.numel(), generator=stream, dtype=torch.float64)
        grid = 2.0 ** (math.floor(math.log2(deviation)) - _GRID)
        return (vector.add_(drawn.to(vector.device), alpha=deviation) / grid).round_().mul_(grid).float()


@dataclass(frozen=True, eq=False)
class Protection:
    """The protection of all clients' uploads in a training in this process.

    Attributes:
        privatiser: protects them.
        uploads: for each planned round, the most uploads that a client has sent when it is over.
        known: what the server knows of uploads before it has sent anything (`Method.public_start`).
    """

    privatiser: Privatiser
    uploads: tuple[int, ...]
    known: Message

    def spent(self, round: int) -> float:
        """Epsilon after this round, of the client that has sent most."""
        return self.privatiser.spent(self.uploads[round])

    def facts(self) -> dict[str, float | None]:
        """How uploads are protected, for the run folder."""
        return self.privatiser.config.model_dump(exclude={"report"}) | {"noise": self.privatiser.noise}

    def record_entries(self, round: int) -> dict[str, float]:
        """Epsilon after the round, for its record."""
        return {"epsilon": self.spent(round)}

    def summary_entries(self, rounds: int) -> dict[str, Any]:
        """Epsilon after so many rounds and the settings, for summary.json."""
        return {"epsilon": self.spent(rounds - 1), "dp": self.facts()}

    def groups(self, clients: int) -> dict[str, list[int]]:
        """None: all clients are protected alike."""
        return {}

    def rounds(self) -> int:
        """How many of the planned rounds the budget allows; refused where there is none."""
        affordable = self.privatiser.affords(max(self.uploads))
        rounds = sum(uploads <= affordable for uploads in self.uploads)
        if not rounds:
            config = self.privatiser.config
            raise FedquiltError(
                f"One round with noise {self.privatiser.noise:g} spends epsilon {self.privatiser.spent(1):.3g}, more than the "
                f"budget of {config.epsilon:g}; use more noise or a larger epsilon."
            )
        return rounds

    def applied(
        self, uploads: Message, specs: Sequence[TensorSpec], round: int, senders: Tensor, down: Message
    ) -> Message:
        """The protected uploads of the senders, who received `down`."""
        return self.privatiser.applied(uploads, specs, round, senders.tolist(), self.known | down)


def _like(stack: Tensor) -> Tensor:
    """An empty tensor for protected numbers: floating-point, on disk where the given one is."""
    return offload.empty_like(stack) if stack.is_floating_point() else torch.empty(stack.shape, device=stack.device)


def _known(known: Mapping[str, Value], name: str, stack: Tensor, place: int) -> Tensor | None:
    """The part of the tensor `name` [n, ...] of the sender at `place` that the server knows; None: nothing."""
    value = known.get(name)
    if value is None:
        return None
    if isinstance(value, Factored):
        return value.rows(place, place + 1)[0] if value.right.shape[1:] == stack.shape[1:] else None
    tensor = dense(value).to(stack.device)
    if tensor.shape == stack.shape[1:]:
        return tensor
    return tensor[place] if tensor.shape == stack.shape else None


def _gap(row: Tensor, base: Tensor | None) -> Tensor:
    """One client's tensor minus what is known of it, flat."""
    return (row.float() if base is None else row.float() - base).flatten()


def secure_normal(count: int) -> Tensor:
    """[count] float64 standard normal numbers from the system's secure randomness.

    Each is half the sum of four, by Box and Muller, of 53 random bits each: from the low bits of a single one an attacker
    could tell which numbers it can have been added to (Mironov, 2012; Holohan and Braghin, 2021).
    """
    out = np.empty(count)
    step = 2**18
    for first in range(0, count, step):
        size = min(step, count - first)
        bits = np.frombuffer(os.urandom(size * 4 * 8), dtype=np.uint64).reshape(4, size) >> np.uint64(11)
        u = (bits + 0.5) * 2.0**-53  # strictly between 0 and 1
        radius, angle = np.sqrt(-2.0 * np.log(u[:2])), 2.0 * math.pi * u[2:]
        out[first : first + size] = 0.5 * (radius * (np.cos(angle) + np.sin(angle))).sum(0)
    return torch.from_numpy(out)
