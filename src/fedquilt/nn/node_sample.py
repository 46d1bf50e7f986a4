"""A fixed number of each client's nodes, drawn by the client's own random stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, client_keys


@dataclass(eq=False)
class NodeSample:
    """S nodes of each of M clients; a client with fewer has all of them, and padding after them.

    Attributes:
        index: [M, S] their rows in the cohort; padding is the client's first row.
        real: [M, S] whether it is a node, not padding.
        client, position: [M S] of each, as the cohort has them, so that random numbers can be drawn for these rows.
    """

    index: Tensor
    real: Tensor
    client: Tensor
    position: Tensor

    def of(self, rows: Tensor) -> Tensor:
        """The sampled rows, zero for padding: [R, H] -> [M, S, H]."""
        return torch.where(self.real.unsqueeze(2), rows[self.index], 0.0)

    @property
    def count(self) -> Tensor:
        """[M] float32: how many nodes each client has in it."""
        return self.real.sum(1).float()


def sample_nodes(cohort: Cohort, seed: int, count: int, layer: int) -> NodeSample:
    """Draw min(count, n_m) nodes of each client without replacement; the same ones in any cohort, for one seed and `layer`."""
    drawn: NodeSample = cohort.once(("node sample", seed, count, layer), lambda c: _draw(c, seed, count, layer))
    return drawn


def _draw(cohort: Cohort, seed: int, count: int, layer: int) -> NodeSample:
    words = Draws(client_keys(seed, cohort), 0).words(cohort, 1, layer)[:, 0].cpu().numpy()[cohort.taken]
    owner = np.repeat(np.arange(cohort.clients), cohort.sizes)
    order = np.lexsort((words, owner))
    place = np.arange(order.size) - np.repeat(np.cumsum(cohort.sizes) - cohort.sizes, cohort.sizes)
    kept = place < count
    index = np.repeat(cohort.start[:, None], count, axis=1)
    real = np.zeros(index.shape, dtype=bool)
    index[owner[kept], place[kept]] = cohort.taken[order[kept]]
    real[owner[kept], place[kept]] = True
    rows = torch.from_numpy(index).to(cohort.device)
    flat = rows.flatten()
    return NodeSample(rows, torch.from_numpy(real).to(cohort.device), cohort.client[flat], cohort.position[flat])


def other_rows(cohort: Cohort) -> Tensor:
    """For each row another one of its client, half of its nodes away, for permutation tests: [R] int64; computed once.

    Padding stays as it is.
    """

    def compute(of: Cohort) -> Tensor:
        nodes = of.node_count[of.client]
        other = (of.position + nodes.div(2, rounding_mode="floor")) % nodes
        return of.first_row[of.client] + torch.where(of.position < nodes, other, of.position)

    rows: Tensor = cohort.once("other rows", compute)
    return rows
