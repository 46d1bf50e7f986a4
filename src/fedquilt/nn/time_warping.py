"""Dynamic time warping: how far sequences are apart where one may run slower or faster than the other; all pairs at once."""

from __future__ import annotations

import torch
from torch import Tensor


def warping_distances(sequences: Tensor) -> Tensor:
    """The distance between all pairs of rows: [n, L] -> [n, n].

    sqrt(D_LL) with D_st = (x_s - y_t)^2 + min(D_s-1,t, D_s,t-1, D_s-1,t-1), Euclid's distance along the best alignment.
    The table of all pairs is filled one antidiagonal s + t after the other: 2 L - 1 steps, each over [n, n, L].
    """
    count, length = sequences.shape
    infinite = sequences.new_full((count, count, 1), torch.inf)
    # Entry s of an antidiagonal d is D at (s, d - s), inf outside the table; `older` is the one before `last`.
    older = last = sequences.new_full((count, count, length), torch.inf)
    place = torch.arange(length, device=sequences.device)
    for total in range(2 * length - 1):
        other = total - place
        inside = (other >= 0) & (other < length)
        cost = (sequences.unsqueeze(1) - sequences[:, other.clamp(0, length - 1)].unsqueeze(0)).square()
        if total == 0:
            best = torch.zeros_like(last)
        else:
            before = torch.cat([infinite, last[..., :-1]], dim=-1)  # at (s - 1, t)
            diagonal = torch.cat([infinite, older[..., :-1]], dim=-1)  # at (s - 1, t - 1)
            best = torch.minimum(torch.minimum(last, before), diagonal)
        older, last = last, torch.where(inside, cost + best, torch.inf)
    return last[..., length - 1].sqrt()
