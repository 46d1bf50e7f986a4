"""Numbers that show whether a method's mechanism acts, computed at the server (`Method.diagnostics`)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedquilt.devices.device import on_host
from fedquilt.devices.offload import row_chunks

MANY = 1000  # clients from which on matrices over their pairs are large


def effective_clients(weights: Tensor) -> Tensor:
    """The mean over receivers of exp(-sum_j a_ij log a_ij): [..., r, n], rows sum to one -> scalar.

    1: everyone receives one client's model, such as its own; n: everyone receives the plain average of n clients.
    """
    return perplexity(weights).mean()


def perplexity(weights: Tensor) -> Tensor:
    """exp(-sum_j a_ij log a_ij), the clients that each receiver's average effectively takes in: [..., r, n] -> [..., r]."""
    return torch.exp(torch.special.entr(weights).sum(-1))


def pair_median(similarity: Tensor) -> Tensor:
    """The median over pairs of different clients, the lower of two in the middle: [..., n, n] -> [...]; of one client, 1."""
    count = similarity.shape[-1]
    if count < 2:
        return similarity.new_ones(similarity.shape[:-2])
    if on_host(similarity) and count > MANY:  # without indices, which would take four times the memory of the pairs
        matrices = similarity.reshape(-1, count, count)
        medians = [torch.cat([row[i + 1 :] for i, row in enumerate(one)]).median() for one in matrices]
        return torch.stack(medians).view(similarity.shape[:-2])
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
