"""Averages of M models by a kernel of how like clients are, without a matrix of M x M and in time linear in M.

Client i is given sum_j k_ij W_j / sum_j k_ij with k_ij = exp(tau (u_i . u_j - 1)), u of length one: FED-PUB's softmax of tau
times the cosine. The kernel is positive definite, and clients that are alike have almost equal rows in it, so a few columns
tell the rest: k ~ L L^T + E with L [M, r] by Cholesky's factorisation, which takes at each step the client that is told worst,
and E the diagonal that is not told, so that what a client counts for itself is exact. Where every entry of E is below
TOLERANCE, so is what any other entry lacks (by Cauchy and Schwarz). The averages are D^-1 (L (L^T W) + E W): two thin products.
At RANK columns it stops all the same; what that costs with 10,000 clients is in docs/scale.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

TOLERANCE = 1e-4
RANK = 128  # columns at most


def factor(unit: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """L [M, r] and the diagonal of E [M]: unit [M, H].

    Rows are of length one, or zero where nothing is known of a client: then it is as like to all.
    """
    unit = unit.double()
    told = torch.zeros(len(unit), min(RANK, len(unit)), dtype=torch.float64, device=unit.device)
    rest = torch.exp(tau * (unit.square().sum(1) - 1.0))
    for column in range(told.shape[1]):
        worst = rest.argmax().view(1)  # a tensor: an accelerator need not wait for anyone to look at it
        left = rest[worst]
        if not unit.is_cuda and float(left) <= TOLERANCE:
            return told[:, :column], rest
        kernel = torch.exp(tau * (unit @ unit[worst].T - 1.0)).squeeze(1)
        new = (kernel - told[:, :column] @ told[worst, :column].squeeze(0)) / left.sqrt()
        told[:, column] = torch.where(left > TOLERANCE, new, 0.0)
        rest = (rest - told[:, column].square()).clamp_min_(0.0)
    return told, rest


def shares(senders: Tensor, receivers: Tensor, tau: float, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The softmax over the senders as left [r, k] right [k, s], plus a weight [r] for the sender that a receiver is itself.

    Shapes: senders [s, H], receivers [r, H]; own [r] the receiver's place among the senders, -1 where it is not one.
    """
    told, rest = factor(senders if receivers is senders else torch.cat([senders, receivers]), tau)
    right, left = told[: len(senders)], told[len(told) - len(receivers) :]
    extra = torch.where(own >= 0, rest[len(rest) - len(receivers) :], 0.0)
    # Who is unknown is as like to all, exactly: a column of ones that nobody else has a part in.
    unknown = (receivers == 0).all(1, keepdim=True)
    left = torch.cat([torch.where(unknown, 0.0, left), unknown.to(left)], dim=1)
    right = torch.cat([right, torch.ones_like(right[:, :1])], dim=1)
    extra = torch.where(unknown.squeeze(1), 0.0, extra)
    total = left @ right.sum(0) + extra
    return (left / total.unsqueeze(1)).float(), right.T.float(), (extra / total).float()
