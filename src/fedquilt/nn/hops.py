"""`Hops`: what propagation makes of the features, with the matrices that are constant computed once.

With P the GCN operator D^-1/2 (A + I) D^-1/2 of a cohort, X its features and W_m the weights of client m, the products
P^k X_m W_m for k = 0..K are needed in every training step.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.features import FeatureMatrix, as_scipy, filled, is_sparse, laid
from fedquilt.graphs.arrays import Features


class Hops:
    """P^k X_m W_m for k = 0..K, or for K alone, at every row or at the training nodes.

    P^k X is computed once for the whole training, and a step multiplies it by weights; at the training nodes, by T rows instead
    of R. Memory: 4 F bytes a row (or 16 bytes per non-zero), of the R rows and the T training nodes, for each k that is needed;
    with an accelerator, the host keeps those of the R rows too.
    Where features are so sparse that propagating R x H products costs less than multiplying what they spread to, as on Cora,
    nothing is stored, and P (P (X W)) is computed in every step.
    """

    def __init__(self, cohort: Cohort, hops: int, only_last: bool) -> None:
        self.cohort, self.hops = cohort, hops
        self.first = hops if only_last else 0
        self._spread = self._propagate()

    @property
    def stored(self) -> bool:
        """Whether P^k X is stored; else products are propagated."""
        return self._spread is not None

    def _propagate(self) -> list[Features] | None:
        """P^k X [R, F] for the k that are needed; None where propagating products costs less."""
        if not self.cohort.stores_features:
            return None
        x = laid(self.cohort, [client.graph.x for client in self.cohort.members])
        p = as_scipy(self.cohort.gcn)
        sparse = is_sparse(self.cohort, x)
        if not sparse and not isinstance(x, np.ndarray):
            x = x.toarray()
        most, work = filled(x) + self.hops * p.nnz, 0
        found: list[Features] = []
        for hop in range(self.hops + 1):
            x = p @ x if hop else x
            work = (0 if self.first else work) + filled(x)
            if sparse and work > most:
                return None
            if hop >= self.first:
                found.append(x)
        return found

    @cached_property
    def _matrices(self) -> list[FeatureMatrix]:
        return [FeatureMatrix.of_rows(self.cohort, x) for x in self._spread or ()]

    @cached_property
    def _training_matrices(self) -> list[FeatureMatrix]:
        return [self.cohort.training.features(x) for x in self._spread or ()]

    def __matmul__(self, weight: Tensor) -> list[Tensor]:
        """P^k X_m W_m at every row, for each k that is needed: [M, F, H] -> [R, H] each."""
        if self._spread is not None:
            return [matrix @ weight for matrix in self._matrices]
        out = [self.cohort.x @ weight]
        for _ in range(self.hops):
            out.append(self.cohort.gcn @ out[-1])
        return out[self.first :]

    def at_training(self, weight: Tensor) -> list[Tensor]:
        """The same at the training nodes only: [T, H] each."""
        if self._spread is not None:
            return [matrix @ weight for matrix in self._training_matrices]
        out = [self.cohort.x @ weight]
        for _ in range(self.hops - 1):
            out.append(self.cohort.gcn @ out[-1])
        last = self.cohort.training.gcn @ out[-1]
        return [*(z[self.cohort.training.index] for z in out[self.first :]), last]


def hops_of(cohort: Cohort, hops: int, only_last: bool = False) -> Hops:
    """P^k X of a cohort for k = 0..hops, or for `hops` alone, made once."""
    made: Hops = cohort.once(("hops", hops, only_last), lambda c: Hops(c, hops, only_last))
    return made
