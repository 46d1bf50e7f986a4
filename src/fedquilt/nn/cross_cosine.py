"""The cosine between each of some clients and each of others, over several tensors together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

NOTHING = 1e-30


def cross_cosine(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """Cosines over all given tensors together: [n, ...] and [m, ...] each -> [n, m], without joining them; 0 for zeros."""
    pairs = [(one.flatten(1), other.flatten(1)) for one, other in zip(left, right, strict=True)]
    product = torch.stack([one @ other.T for one, other in pairs]).sum(0)
    mine = torch.stack([one.square().sum(1) for one, _ in pairs]).sum(0).clamp_min(NOTHING).sqrt()
    theirs = torch.stack([other.square().sum(1) for _, other in pairs]).sum(0).clamp_min(NOTHING).sqrt()
    return product / (mine.unsqueeze(1) * theirs)
