"""Diagonal sheaf diffusion (Bodnar et al., 2022) on a complete graph of a few nodes.

A sheaf gives every node and every edge a vector of d numbers (its stalk), and every pair (node u, edge uv) a linear map from
the node's stalk to the edge's. Here maps are diagonal, so each is d numbers, and the sheaf Laplacian is d ordinary weighted
Laplacians, one for each dimension of the stalk.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def restriction_maps(x: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Compute F_{u, uv} = tanh(x_u own + x_v other), the diagonal of the map of node u into the edge uv; zero for u = v.

    This is the product with the concatenation [x_u, x_v], without forming the pairs.

    Args:
        x: [N, D]. own, other: [D, d].

    Returns:
        [d, N, N]; the axes are the dimension, u and v.
    """
    maps = torch.tanh((x @ own).T.unsqueeze(2) + (x @ other).T.unsqueeze(1))
    return maps * (1.0 - torch.eye(len(x), device=x.device))


def sheaf_laplacian(maps: Tensor) -> Tensor:
    """Compute the matrix of L(X)_u = sum_v F_{u, uv} (F_{u, uv} X_u - F_{v, uv} X_v), eq. 3: [d, N, N] -> [d, N, N]."""
    return torch.diag_embed(maps.square().sum(2)) - maps * maps.mT


def normalised(laplacian: Tensor) -> Tensor:
    """Compute D^-1/2 L D^-1/2 with D the diagonal of L, eq. 4; a node whose maps are all zero has a row of zeros."""
    degree = laplacian.diagonal(dim1=1, dim2=2)
    # The gradient of the root is infinite at zero, so the degree is clamped inside the root too.
    scale = torch.where(degree > 0, degree.clamp_min(1e-12).rsqrt(), 0.0)
    return scale.unsqueeze(2) * laplacian * scale.unsqueeze(1)


def diffuse(x: Tensor, laplacian: Tensor, stalk: Tensor, channel: Tensor) -> Tensor:
    """Compute X - elu(L (I kron W1) X W2), eq. 5.

    Args:
        x: [N, d, f]. laplacian: [d, N, N]. stalk: W1 [d, d]. channel: W2 [f, f].
    """
    mixed = torch.einsum("de,nef,fg->dng", stalk, x, channel)
    return x - F.elu(laplacian @ mixed).transpose(0, 1)
