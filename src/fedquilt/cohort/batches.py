"""Training steps on parts of clients' graphs: a `Batch` is a cohort of a part of each client.

A part is a few clusters of the client's graph (`cohort.clusters`), or a few training nodes with neighbours that are drawn
(`cohort.sampled_neighbours`). A batch has the edges of its parts and operators normalised by them. The clients of a cohort may
take different numbers of steps in an epoch. All of them are in the same epoch; one that has taken its own steps waits for the
others, with a single node in the batch, and what is computed for it is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.clusters import Clusters, clusters_of
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.sampled_neighbours import SampledNeighbours, sampled_neighbours_of


class Batch(Cohort):
    """Parts of the graphs of a cohort's clients, as a cohort."""

    fleeting = True

    def __init__(self, parts: Sequence[Client], origin: Cohort) -> None:
        super().__init__(parts, origin.device, origin.padding)
        self._origin = origin

    @property
    def origin(self) -> Cohort:
        """The cohort of the whole graphs."""
        return self._origin


@dataclass(frozen=True)
class Turn:
    """One training step of a cohort.

    Attributes:
        batch: the parts of the clients' graphs.
        epoch: the number of the epoch in the round.
        clock: [M] int64, the number of the step in each client's training.
        begins: [M] bool, whether it is the client's first step of an epoch.
        waiting: the places of the clients that do not take it.
        ends: whether it is the last one of the epoch.
        resting: the places of the clients that take none of the epoch.
    """

    batch: Batch
    epoch: int
    clock: Tensor
    begins: Tensor
    waiting: Tensor
    ends: bool
    resting: Tensor


class Schedule:
    """The training steps of a round.

    Attributes:
        start, end: [M] int64, the number of each client's first step in its training, and of the first one after the round.
    """

    def __init__(
        self,
        cohort: Cohort,
        nodes: int,
        seed: int,
        first: Sequence[int],
        epochs: Sequence[int],
        fan_out: Sequence[int] = (),
    ) -> None:
        """Plan a round.

        Args:
            cohort: the clients with their whole graphs.
            nodes: about how many nodes of each client are in a step; with a fan-out, how many training nodes.
            seed: of the training.
            first: [M] the number of the round's first epoch in each client's training.
            epochs: [M] how many epochs each client trains.
            fan_out: how many neighbours are drawn at each distance from a step's training nodes; none: steps have clusters.
        """
        self.cohort, self.seed = cohort, seed
        self.first, self.epochs = list(first), list(epochs)
        self._cuts = [_cut(client, nodes, fan_out) for client in cohort.members]
        self.steps = np.array([own.steps for own in self._cuts])
        self.start = self._tensor(np.array(first) * self.steps)
        self.end = self._tensor((np.array(first) + epochs) * self.steps)

    def turns(self, constants: Mapping[str, Callable[[Client], Any]]) -> Iterator[Turn]:
        """The steps one after the other; a batch is made when its turn comes, and released after it.

        `constants` are numbers of a whole graph that a method reads, by the names under which clients have them.
        """
        for epoch in range(max(self.epochs)):
            taken = np.where(np.array(self.epochs) > epoch, self.steps, 0)
            dealt = [own.dealt(self.seed, n + epoch) for own, n in zip(self._cuts, self.first, strict=True)]
            for step in range(taken.max()):
                parts = [self._part(m, dealt[m], step, step < taken[m], constants) for m in range(self.cohort.clients)]
                batch = Batch(parts, self.cohort)
                yield Turn(
                    batch=batch,
                    epoch=epoch,
                    clock=self.start + epoch * self._tensor(self.steps) + step,
                    begins=self._tensor((step == 0) & (taken > 0)),
                    waiting=self._tensor(np.flatnonzero(taken <= step)),
                    ends=step == taken.max() - 1,
                    resting=self._tensor(np.flatnonzero(taken == 0)),
                )
                batch.release()

    def _part(
        self,
        m: int,
        dealt: Sequence[Callable[[], Client]],
        step: int,
        at_work: bool,
        constants: Mapping[str, Callable[[Client], Any]],
    ) -> Client:
        client = self.cohort.members[m]
        part = dealt[step]() if at_work else self._cuts[m].induced(client.training_nodes[:1])
        if part is client:
            return client
        for name, compute in constants.items():
            part.preset(name, client.once(name, compute))
        return part

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.cohort.device)


def _cut(client: Client, nodes: int, fan_out: Sequence[int]) -> Clusters | SampledNeighbours:
    """How a client's graph is cut into the parts of an epoch's steps."""
    return sampled_neighbours_of(client, nodes, fan_out) if fan_out else clusters_of(client, nodes)


def steps_an_epoch(cohort: Cohort, nodes: int, fan_out: Sequence[int] = ()) -> Tensor:
    """[M] float32: how many steps of about so many nodes each client takes in an epoch."""
    steps = [_cut(client, nodes, fan_out).steps for client in cohort.members]
    return torch.tensor(steps, dtype=torch.float32, device=cohort.device)


def fits(cohort: Cohort, nodes: int) -> bool:
    """Whether a step of so many nodes holds the whole graph of every client."""
    return max(cohort.sizes) <= nodes
