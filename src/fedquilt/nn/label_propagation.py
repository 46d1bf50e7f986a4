"""Label propagation without parameters: distributions over classes spread along the edges of every client's graph."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort


def propagation(cohort: Cohort, first: Tensor, steps: int, own: float) -> Iterator[Tensor]:
    """Y^k = own Y^0 + (1 - own) A Y^(k-1) for k = 1 .. steps, with A the GCN operator: [R, C] each, from Y^0 [R, C].

    Edges count with their weights. Rows of the symmetric operator do not sum to one, so neither do those of Y^k: see
    `distributions`.
    """
    spread = first
    for _ in range(steps):
        spread = torch.lerp(cohort.gcn @ spread, first, own)
        yield spread


def distributions(spread: Tensor) -> Tensor:
    """Rows divided by their sums, [R, C]; a row of zeros stays."""
    return spread / spread.sum(1, keepdim=True).clamp_min(1e-30)
