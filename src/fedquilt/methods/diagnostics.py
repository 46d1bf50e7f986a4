"""Numbers that show whether a method's mechanism acts, computed at the server (`Method.diagnostics`)."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.devices.offload import row_chunks


def effective_clients(weights: Tensor) -> Tensor:
    """The mean over receivers of exp(-sum_j a_ij log a_ij): [..., r, n], rows sum to one -> scalar.

    1: everyone receives one client's model, such as its own; n: everyone receives the plain average of n clients.
    """
    return torch.exp(-torch.special.xlogy(weights, weights).sum(-1)).mean()


def own_weight(weights: Tensor) -> Tensor:
    """The mean weight of a client for itself, where receivers and senders are the same clients: [..., n, n] -> scalar."""
    return weights.diagonal(dim1=-2, dim2=-1).mean()


def pair_median(similarity: Tensor) -> Tensor:
    """The median over pairs of different clients, the lower of two in the middle: [..., n, n] -> [...]; of one client, 1."""
    count = similarity.shape[-1]
    if count < 2:
        return similarity.new_ones(similarity.shape[:-2])
    # The pairs' places are known from the shape, so that the host does not wait for an accelerator.
    row, column = torch.triu_indices(count, count, 1, device=similarity.device)
    return similarity[..., row, column].median(dim=-1).values


def mean_norm(stack: Tensor) -> Tensor:
    """The mean over clients of a weight's norm: [n, ...] -> scalar, some clients at a time where they are offloaded to disk."""
    return torch.cat([torch.linalg.vector_norm(piece.flatten(1), dim=1) for _, piece in row_chunks(stack)]).mean()
