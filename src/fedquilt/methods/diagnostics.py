"""Numbers that show whether a method's mechanism acts, computed at the server (`Method.diagnostics`)."""

from __future__ import annotations

from collections.abc import Mapping

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


def spread(written: Mapping[str, Tensor], began: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """How far clients' weights are apart, over all of them: two scalars.

    sqrt(mean_i |w_i - w|^2) / |w - w_0| (`fedquilt.methods.fedsheafhn.personal_share`), with w the mean over the clients and
    w_0 the common start, and the root mean square distance between two different clients.

    Args:
        written: by name, [n, ...]. began: by the same names, [P].
    """
    count = len(next(iter(written.values())))
    apart, moved = [], []
    for name, w in written.items():
        beside = (w - w[:1]).flatten(1)  # so that equal weights differ by nothing, not by rounding
        mean = beside.mean(0)
        moved.append(torch.linalg.vector_norm(w[0].flatten() + mean - began[name]))
        apart.append(torch.linalg.vector_norm(beside.sub_(mean)))
    squares = torch.stack(apart).square().sum()
    share = (squares / count / torch.stack(moved).square().sum().clamp_min(1e-12)).sqrt()
    return share, (squares * 2 / max(count - 1, 1)).sqrt()
