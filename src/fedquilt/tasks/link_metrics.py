"""Hits@K of many clients at once; area under the ROC curve and average precision are those of `class_metrics`."""

from __future__ import annotations

import torch
from torch import Tensor


def hits_at(k: int, score: Tensor, positive: Tensor, owner: Tensor, clients: int) -> Tensor:
    """Each client's share of positive pairs that score above its K-th highest negative: [M] float32.

    This is the measure of the Open Graph Benchmark. NaN for a client without a positive pair, or with fewer than K negatives,
    where that benchmark says 1: every pair would be a hit, whatever the model.

    Args:
        k: K.
        score: [P] the pairs' scores.
        positive: [P] bool, whether a pair is an edge.
        owner: [P] int64, whose pair it is.
        clients: M.
    """
    score, other = score.double(), ~positive
    # Client by client; in each the negatives from the highest down, then the positives.
    order = score.argsort(descending=True, stable=True)
    order = order[positive[order].long().argsort(stable=True)]
    order = order[owner[order].argsort(stable=True)]
    ones, negatives, positives = _sums(
        torch.stack([torch.ones_like(score), other.double(), positive.double()]), owner, clients
    )
    first = (ones.cumsum(0) - ones).long()
    limit = score[order[(first + k - 1).clamp(0, max(len(score) - 1, 0))]] if len(score) else score.new_zeros(clients)
    above = (score > limit[owner]) & positive
    found = _sums(above.double().unsqueeze(0), owner, clients)[0] / positives
    return torch.where(negatives >= k, found, torch.nan).float()


def _sums(values: Tensor, owner: Tensor, clients: int) -> Tensor:
    """The sums of [K, P] values by client: [K, M] float64."""
    return torch.zeros(len(values), clients, device=values.device, dtype=torch.float64).index_add_(1, owner, values)
