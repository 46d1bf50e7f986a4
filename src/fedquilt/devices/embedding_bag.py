"""Dot products of pairs of rows without gathering the rows first, computed as the gradient of an embedding bag.

The operator `aten._embedding_bag_per_sample_weights_backward` is private. Where a PyTorch does not have it, rows are gathered.
"""

from __future__ import annotations

import torch
from torch import Tensor


def pair_products(c: Tensor, z: Tensor, source: Tensor, target: Tensor, offsets: Tensor) -> Tensor:
    """Compute c_u . z_v of every pair (u, v): c, z [R, d] -> [E].

    Args:
        c, z: the rows.
        source, target: [E] int32, u in rising order, and v.
        offsets: [R] int32, the first pair of each u.
    """
    gradient = getattr(torch.ops.aten, "_embedding_bag_per_sample_weights_backward", None)
    if gradient is None:
        return (c.index_select(0, source) * z.index_select(0, target)).sum(1)
    # These products are the gradient of a weighted sum of rows with respect to its weights.
    products: Tensor = gradient(c.contiguous(), z.contiguous(), target, offsets, source, 0)
    return products
