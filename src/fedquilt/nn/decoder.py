"""The inner-product decoder of a variational graph autoencoder (Kipf and Welling, 2016), over a cohort.

p(A_ij = 1) = sigmoid(r_i . r_j). All pairs of nodes would cost n^2; each step takes every edge once and as many random
pairs of the same client, which are hardly ever edges.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort import Cohort
from fedquilt.nn.draws import Draws
from fedquilt.rows import Rows


class Pairs:
    """The undirected edges of a cohort, each once: what a decoder has to tell from random pairs."""

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort
        counts = [client.graph.edges.shape[1] for client in cohort.members]
        self.rows = Rows(counts, cohort.device, padding=0.0)
        joined = [client.graph.edges + first for client, first in zip(cohort.members, cohort.start, strict=True)]
        self.edges = torch.from_numpy(np.concatenate(joined, axis=1)).to(cohort.device)
        self.sizes = torch.tensor(cohort.sizes, device=cohort.device)
        self.first = torch.from_numpy(cohort.start).to(cohort.device)
        # 1 / (number of the client's edges), so that a sum over all pairs is a sum of the clients' means.
        self.weight = 1.0 / torch.tensor(counts, device=cohort.device).clamp_min(1)[self.rows.client]

    def others(self, draws: Draws, layer: int) -> Tensor:
        """[2, E] as many random pairs as edges, each within the client of its edge."""
        places = draws.below(self.rows, self.sizes, 2, layer)
        return (places + self.first[self.rows.client].unsqueeze(1)).T


def reconstruction(pairs: Pairs, z: Tensor, draws: Draws, layer: int) -> Tensor:
    """-log p(A | z), the mean over a client's edges and as many random pairs, summed over clients: z [R, d] -> scalar."""
    u, v = torch.cat([pairs.edges, pairs.others(draws, layer)], dim=1)
    score = (z.index_select(0, u) * z.index_select(0, v)).sum(1)
    edge, other = score.chunk(2)
    return 0.5 * ((F.softplus(-edge) + F.softplus(other)) * pairs.weight).sum()
