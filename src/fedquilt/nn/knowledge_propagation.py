"""Propagation between nodes of which a model says the same, over a cohort; memory and time are linear in the nodes.

The cosine of two nodes' class probabilities is a product of two rows of length C. So the matrix of all pairs has rank C, and is
never written out: a product with it is a product with C rows a client, and one back.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort


def pooled(cohort: Cohort, left: Tensor, right: Tensor) -> Tensor:
    """left_m^T right_m for every client: [R, a], [R, b] -> [M, a, b]. Rows of padding have to be zero in one of them."""
    if cohort.length is not None:
        shape = (cohort.clients, cohort.length, -1)
        return torch.bmm(left.view(shape).transpose(1, 2), right.view(shape))
    pairs = zip(left.split(cohort.spans), right.split(cohort.spans), strict=True)
    return torch.stack([one.T @ other for one, other in pairs])


@dataclass(frozen=True, eq=False)
class Kernel:
    """K = D^-1/2 S D^-1/2 between the nodes of each client, with S_ij the cosine of rows i and j, and D the row sums of S.

    Attributes:
        root: [R, C] the rows of D^-1/2 Z with S = Z Z^T, zero for padding, so that K = root root^T.
        top: [R, 1] the unit vector of each client with K top = top: the square roots of D over their norm.
    """

    root: Tensor
    top: Tensor

    @classmethod
    def of(cls, cohort: Cohort, probabilities: Tensor) -> Kernel:
        """The kernel of class probabilities: [R, C], differentiable in them."""
        real: Tensor = cohort.once("real rows", _real_rows)
        ones = real.to(probabilities.dtype)
        z = torch.nn.functional.normalize(probabilities, dim=1) * ones
        degree = cohort.multiply(z, pooled(cohort, z, ones))
        degree = torch.where(real, degree, 1.0)  # at least one, by the node's cosine with itself
        total = pooled(cohort, degree, ones)
        return cls(z * degree.rsqrt(), (degree / total[cohort.client, 0]).sqrt() * ones)

    def times(self, cohort: Cohort, h: Tensor) -> Tensor:
        """K h: [R, H] -> [R, H]."""
        return cohort.multiply(self.root, pooled(cohort, self.root, h))

    def expected(self, cohort: Cohort, h: Tensor) -> Tensor:
        """top top^T h: what K h would be if any two nodes were as alike as their degrees let one expect."""
        return cohort.multiply(self.top, pooled(cohort, self.top, h))


def _real_rows(cohort: Cohort) -> Tensor:
    """[R, 1] whether a row is a node, not padding."""
    return (cohort.position < cohort.node_count[cohort.client]).unsqueeze(1)


@dataclass(frozen=True, eq=False)
class Propagation:
    """P = alpha A + (1 - alpha) K, of the graph's GCN operator A and the kernel of what a model knows of the nodes."""

    cohort: Cohort
    kernel: Kernel
    alpha: float

    def __matmul__(self, h: Tensor) -> Tensor:
        """P h: [R, H] -> [R, H]."""
        out = torch.zeros_like(h)
        if self.alpha > 0:
            out = out + self.alpha * (self.cohort.gcn @ h)
        if self.alpha < 1:
            out = out + (1 - self.alpha) * self.kernel.times(self.cohort, h)
        return out

    def polynomial(self, terms: list[Tensor]) -> Tensor:
        """sum_k P^k terms[k], each [R, H], by Horner's rule."""
        *others, out = terms
        for term in reversed(others):
            out = self @ out + term
        return out
