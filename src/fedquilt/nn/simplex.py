"""Weights that are not negative and sum to one, as near as possible to given numbers: the projection on the simplex."""

from __future__ import annotations

import torch
from torch import Tensor


def nearest_shares(rows: Tensor) -> Tensor:
    """The projection of each row on the simplex: [..., n] -> [..., n], the argmin of |w - v|^2 over w >= 0 with sum 1.

    It is max(v - t, 0) with the t that makes it sum to one. With v sorted downwards, t = (v_1 + .. + v_k - 1) / k for the
    largest k at which v_k > t (Duchi et al., 2008); all rows at once, without a value read on the host.
    """
    falling = rows.sort(dim=-1, descending=True).values
    places = torch.arange(1, rows.shape[-1] + 1, device=rows.device, dtype=rows.dtype)
    level = (falling.cumsum(-1) - 1.0) / places
    kept = (falling > level).sum(-1, keepdim=True).clamp_min(1)
    return (rows - level.gather(-1, kept - 1)).clamp_min(0.0)
