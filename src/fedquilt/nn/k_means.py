"""k-means over a few points, for several problems at once."""

from __future__ import annotations

import torch
from torch import Tensor

RESTARTS = 4
ROUNDS = 20


def k_means(points: Tensor, present: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Assign each point to a cluster: points [B, n, d], present [B, n] -> [B, n] int64, -1 for points that are not present.

    Each of the B problems is started by k-means++ `RESTARTS` times, and the partition with the least sum of squares is
    returned. If a problem has fewer points than `clusters`, each point is a cluster of its own.
    """
    problems, count, _ = points.shape
    points, present = points.detach().cpu().double(), present.detach().cpu()
    # Compute all restarts of all problems as one batch.
    x = torch.where(present.unsqueeze(-1), points, 0.0).repeat(RESTARTS, 1, 1)
    mask = present.repeat(RESTARTS, 1)
    centres = _spread_start(x, mask, min(clusters, count), generator)
    for _ in range(ROUNDS):
        label = torch.cdist(x, centres).argmin(2)
        member = torch.nn.functional.one_hot(label, centres.shape[1]).double() * mask.unsqueeze(-1)
        size = member.sum(1)
        moved = torch.where(size.unsqueeze(-1) > 0, member.mT @ x / size.clamp_min(1).unsqueeze(-1), centres)
        if torch.equal(moved, centres):
            break
        centres = moved
    gap = torch.cdist(x, centres).min(2)
    cost = (gap.values.square() * mask).sum(1).view(RESTARTS, problems)
    best = cost.argmin(0)
    label = gap.indices.view(RESTARTS, problems, count)[best, torch.arange(problems)]
    return torch.where(present, label, -1)


def _spread_start(x: Tensor, mask: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Draw initial centres by k-means++: each is a point drawn by its squared distance to earlier centres. [B, k, d]."""
    weight = mask.double()
    centres: list[Tensor] = []
    for _ in range(clusters):
        # Where every point is a centre already (or no point is present), draw any.
        some = torch.where(weight.sum(1, keepdim=True) > 0, weight, mask.double() + 1e-12)
        drawn = torch.multinomial(some, 1, generator=generator)
        centres.append(x.gather(1, drawn.unsqueeze(-1).expand(-1, -1, x.shape[2])))
        gap = torch.cdist(x, torch.cat(centres, dim=1)).min(2).values.square()
        weight = gap * mask
    return torch.cat(centres, dim=1)
