"""Average M models, weighted by a kernel of the similarity between clients, without an M x M matrix and in time linear in M.

Client i receives sum_j k_ij W_j / sum_j k_ij with k_ij = exp(tau (u_i . u_j - 1)), u of length one: FED-PUB's softmax of tau
times the cosine. The kernel is positive definite, and similar clients have almost equal rows in it, so a few columns
approximate it: k ~ L L^T + E. L [M, r] is a pivoted Cholesky factor; each step takes the client with the largest residual. E is
the diagonal of the residual, so a client's weight for itself is exact. If every entry of E is below TOLERANCE, so is the error
of all other entries (by Cauchy and Schwarz). The averages are D^-1 (L (L^T W) + E W): two thin products. L has at most RANK
columns; `fedquilt docs scale` has the error with 10,000 clients.
"""

from __future__ import annotations

import torch
from torch import Tensor

TOLERANCE = 1e-4
RANK = 128  # the largest number of columns of L


def factor(unit: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """Compute L [M, r] and the diagonal of E [M] for the client vectors `unit` [M, H].

    Rows have length one, or zero for an unknown client, which is equally similar to all.
    """
    unit = unit.double()
    columns = torch.zeros(len(unit), min(RANK, len(unit)), dtype=torch.float64, device=unit.device)
    residual = torch.exp(tau * (unit.square().sum(1) - 1.0))
    for column in range(columns.shape[1]):
        worst = residual.argmax().view(1)  # a tensor: reading its value would synchronise an accelerator
        pivot = residual[worst]
        if not unit.is_cuda and float(pivot) <= TOLERANCE:
            return columns[:, :column], residual
        kernel = torch.exp(tau * (unit @ unit[worst].T - 1.0)).squeeze(1)
        new = (kernel - columns[:, :column] @ columns[worst, :column].squeeze(0)) / pivot.sqrt()
        columns[:, column] = torch.where(pivot > TOLERANCE, new, 0.0)
        residual = (residual - columns[:, column].square()).clamp_min_(0.0)
    return columns, residual


def shares(senders: Tensor, receivers: Tensor, tau: float, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Factor the softmax over senders as left [r, k] right [k, s], plus a weight [r] of each receiver for itself as a sender.

    Shapes: senders [s, H], receivers [r, H]; own [r] is the receiver's index among the senders, or -1 if it is not a sender.

    Returns:
        left, right, and the receivers' own weights.
    """
    columns, residual = factor(senders if receivers is senders else torch.cat([senders, receivers]), tau)
    right, left = columns[: len(senders)], columns[len(columns) - len(receivers) :]
    extra = torch.where(own >= 0, residual[len(residual) - len(receivers) :], 0.0)
    # An unknown receiver weights all senders equally: an extra column of ones, which no other receiver uses.
    unknown = (receivers == 0).all(1, keepdim=True)
    left = torch.cat([torch.where(unknown, 0.0, left), unknown.to(left)], dim=1)
    right = torch.cat([right, torch.ones_like(right[:, :1])], dim=1)
    extra = torch.where(unknown.squeeze(1), 0.0, extra)
    total = left @ right.sum(0) + extra
    return (left / total.unsqueeze(1)).float(), right.T.float(), (extra / total).float()
