"""Numbers that show whether a method's mechanism acts, computed at the server (`Method.diagnostics`)."""

from __future__ import annotations

import torch
from torch import Tensor


def effective_clients(weights: Tensor) -> Tensor:
    """The mean over receivers of exp(-sum_j a_ij log a_ij): [..., r, n], rows sum to one -> scalar.

    1: everyone receives one client's model, such as its own; n: everyone receives the plain average of n clients.
    """
    return torch.exp(-torch.special.xlogy(weights, weights).sum(-1)).mean()


def own_weight(weights: Tensor) -> Tensor:
    """The mean weight of a client for itself, where receivers and senders are the same clients: [..., n, n] -> scalar."""
    return weights.diagonal(dim1=-2, dim2=-1).mean()


def pair_median(similarity: Tensor) -> Tensor:
    """The median over all pairs of different clients: [..., n, n] -> scalar; of one client, 1."""
    count = similarity.shape[-1]
    if count < 2:
        return similarity.new_ones(())
    above = torch.ones(count, count, dtype=torch.bool, device=similarity.device).triu(1)
    # The pairs' places are known from the shape, so that the host does not wait for an accelerator.
    place = torch.arange(count * count, device=similarity.device).view(count, count)
    pairs = torch.sort(torch.where(above, place, count * count).flatten()).values[: count * (count - 1) // 2]
    return similarity.flatten(-2)[..., pairs].median()


def mean_norm(stack: Tensor) -> Tensor:
    """The mean over clients of the Euclidean norm of a weight: [n, ...] -> scalar."""
    return torch.linalg.vector_norm(stack.flatten(1), dim=1).mean()
