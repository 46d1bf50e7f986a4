"""The inner-product decoder of a variational graph autoencoder (Kipf and Welling, 2016), over a cohort.

p(A_uv = 1) = sigmoid(r_u . r_v). Scoring all pairs of nodes would cost n^2. Instead, each step scores every edge (u, v) once,
and for each edge one random pair (u, w) of the same client, which is hardly ever an edge. Where edges have weights, an edge's
term is multiplied by its weight relative to the client's mean.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.client import joined_weights
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws
from fedquilt.cohort.rows import Rows
from fedquilt.nn.edges import Links

NOISE_LAYER, PAIR_LAYER = 60, 61  # the `layer` of these draws in `Draws`; a model's own layers use low numbers


class Pairs:
    """The undirected edges of a cohort, each once. A decoder learns to tell them from random pairs.

    Attributes:
        edges: the pairs. weight: [E] 1 / (number of the client's edges). strength: [E] the edges' relative weights, or None.
    """

    def __init__(self, cohort: Cohort) -> None:
        orders = [np.lexsort(client.graph.edges[::-1]) for client in cohort.members]
        edges = [client.graph.edges[:, order] for client, order in zip(cohort.members, orders, strict=True)]
        counts = [own.shape[1] for own in edges]
        self.rows = Rows(counts, cohort.device, padding=0.0)
        first = torch.from_numpy(cohort.start).to(cohort.device)
        joined = torch.from_numpy(np.concatenate(edges, axis=1)).to(cohort.device) + first[self.rows.client]
        self.edges = Links(joined[0], joined[1], cohort.rows)
        self._sizes, self._first = cohort.node_count, first[self.rows.client]
        # 1 / (number of the client's edges), so that a sum over all pairs is a sum of the clients' means.
        self.weight = 1.0 / torch.tensor(counts, device=cohort.device).clamp_min(1)[self.rows.client]
        strength = joined_weights(cohort.members)
        if strength is not None:
            before = np.repeat(np.cumsum(counts) - counts, counts)
            strength = strength[np.concatenate(orders) + before]
        self.strength = None if strength is None else torch.from_numpy(strength).to(cohort.device)

    def others(self, draws: Draws, layer: int) -> Links:
        """Draw a random pair (u, w) for every edge (u, v); w is any node of the same client."""
        target = draws.below(self.rows, self._sizes, 1, layer).flatten() + self._first
        return self.edges.retargeted(target)


def reconstruction(pairs: Pairs, z: Tensor, draws: Draws, layer: int) -> Tensor:
    """Compute -log p(A | z): the mean over a client's edges and as many random pairs, summed over clients.

    Shapes: z [R, d] -> scalar.
    """
    edge, other = pairs.edges.self_dot(z), pairs.others(draws, layer).self_dot(z)
    present = F.softplus(-edge) if pairs.strength is None else F.softplus(-edge) * pairs.strength
    return 0.5 * ((present + F.softplus(other)) * pairs.weight).sum()


def expected_reconstruction(cohort: Cohort, mean: Tensor, logvar: Tensor, draws: Draws) -> Tensor:
    """Estimate -E_q[log p(A | z)] for q = N(mean, exp(logvar)) from one reparameterised draw per node: [R, d] -> scalar."""
    sample = mean + (0.5 * logvar).exp() * draws.normal(cohort, mean.shape[1], NOISE_LAYER)
    return reconstruction(cohort.once("pairs", Pairs), sample, draws, PAIR_LAYER)
