"""k-means over a few points, for several problems at once, in a fixed number of steps."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.devices.device import on_host

RESTARTS = 4
ROUNDS = 20
DIRECT = "donot_use_mm_for_euclid_dist"  # equal points have equal distances, which products of matrices do not promise


@torch.no_grad()
def k_means(points: Tensor, present: Tensor, clusters: int, uniform: Tensor) -> Tensor:
    """Assign each point to a cluster: points [B, n, d], present [B, n] -> [B, n] int64, -1 for points that are not present.

    Each of the B problems is started by k-means++ `RESTARTS` times and improved by `ROUNDS` of Lloyd's iterations; the
    partition with the least sum of squares is returned. A cluster that loses its last point keeps its centre. If a problem has
    fewer points than `clusters`, each point is a cluster of its own. No value is read on the host when points are on an
    accelerator.

    Args:
        uniform: [RESTARTS, B, k, n] numbers in (0, 1), k = min(clusters, n) (see `draw_count`), which decide the starts.
    """
    problems, count, _ = points.shape
    # All restarts of all problems are one batch. A point that is not present is zero, and counts for nothing in a sum.
    x = torch.where(present.unsqueeze(-1), points.double(), 0.0).repeat(RESTARTS, 1, 1)
    mask = present.repeat(RESTARTS, 1)
    counted = torch.cat([x, mask.double().unsqueeze(-1)], dim=2)
    centres = _spread_start(x, mask, uniform.flatten(0, 1))
    number = torch.arange(centres.shape[1], device=x.device)
    for _ in range(ROUNDS):
        label = torch.cdist(x, centres, compute_mode=DIRECT).argmin(2)
        total = (label.unsqueeze(1) == number.unsqueeze(1)).double() @ counted  # the last column is the size
        moved = torch.where(total[..., -1:] > 0, total[..., :-1] / total[..., -1:], centres)
        if on_host(x) and torch.equal(moved, centres):
            break  # further rounds would not change anything
        centres = moved
    gap, label = torch.cdist(x, centres, compute_mode=DIRECT).min(2)
    best = (gap.square() * mask).sum(1).view(RESTARTS, 1, problems, 1).argmin(0, keepdim=True)
    label = label.view(RESTARTS, 1, problems, count).gather(0, best.expand(-1, -1, -1, count)).view(problems, count)
    return torch.where(present, label, -1)


def draw_count(problems: int, count: int, clusters: int) -> tuple[int, int, int, int]:
    """The shape of `uniform` for B problems of n points each."""
    return RESTARTS, problems, min(clusters, count), count


def _spread_start(x: Tensor, mask: Tensor, uniform: Tensor) -> Tensor:
    """Draw initial centres by k-means++: each is a point drawn by its squared distance to earlier centres. [B, k, d].

    A point is drawn by weights w as the one with the largest w_i / e_i, where e_i = -log u_i is exponential.
    """
    present = mask.double()
    weight = present
    race = uniform.double().log().neg().clamp(1e-12, 1e3)
    centres: list[Tensor] = []
    for one in race.unbind(1):
        # Where every point is a centre already, draw any that is present.
        some = torch.where(weight.sum(1, keepdim=True) > 0, weight, present)
        drawn = (some / one).argmax(1)
        centres.append(x.gather(1, drawn.view(-1, 1, 1).expand(-1, -1, x.shape[2])))
        gap = torch.cdist(x, centres[-1], compute_mode=DIRECT).squeeze(2).square() * present
        weight = gap if len(centres) == 1 else torch.minimum(weight, gap)
    return torch.cat(centres, dim=1)
