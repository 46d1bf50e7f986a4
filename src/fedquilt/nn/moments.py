"""What FedGTA says of a client's soft labels: their moments over the nodes, and how sure they are where the graph is dense."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort

Kind = Literal["raw", "central", "hybrid"]


def moment_count(kind: Kind, orders: int) -> int:
    """How many moments of one variable are taken: raw ones from order 1, central ones from order 2 (the first is zero)."""
    return {"raw": orders, "central": orders - 1, "hybrid": 2 * orders - 1}[kind]


def mixed_moments(cohort: Cohort, signals: Sequence[Tensor], orders: int, kind: Kind) -> Tensor:
    """Moments over each client's nodes, of every column of every signal [R, C]: [M, moments x signals x C].

    raw: mean y^p for p = 1 .. orders; central: mean (y - mean y)^p for p = 2 .. orders; hybrid: both.
    """
    y = torch.cat(list(signals), dim=1)
    mean = cohort.node_mean(y)
    out = []
    if kind != "central":
        out += [mean, *_powers(cohort, y, orders)]
    if kind != "raw":
        out += _powers(cohort, cohort.add(y, -mean), orders)
    return torch.cat(out, dim=1)


def _powers(cohort: Cohort, y: Tensor, orders: int) -> list[Tensor]:
    """The means over nodes of y^p for p = 2 .. orders."""
    out, power = [], y
    for _ in range(orders - 1):
        power = power * y
        out.append(cohort.node_mean(power))
    return out


def smoothing_confidence(cohort: Cohort, y: Tensor) -> Tensor:
    """n times the mean over nodes, weighted by degree, of e/C sum_c (1/e + y_ic log y_ic): distributions [R, C] -> [M].

    1/e is the most that -y log y can be, so that a node adds 1 where its distribution is on one class, and the less the more it
    is spread: a client's confidence is between 0 and its number n of nodes. A degree is the weight of the node's edges and its
    self-loop.
    """
    share: Tensor = cohort.once("degree shares", _degree_shares)
    sure = 1.0 + torch.special.xlogy(y, y).sum(1) * (math.e / y.shape[1])
    return cohort.sum_over((share * sure)[cohort.nodes], cohort.nodes).clamp_min(0.0)


def _degree_shares(cohort: Cohort) -> Tensor:
    """[R] n d_i / sum_j d_j, with j over the nodes of the same client and n their number."""
    target = cohort.edges[1].cpu()
    weights = torch.ones(len(target)) if cohort.edge_weights is None else cohort.edge_weights.cpu()
    degree = torch.zeros(cohort.rows).index_add_(0, target, weights)
    owner = cohort.client.cpu()
    total = torch.zeros(cohort.clients).index_add_(0, owner, degree)
    return (degree * (cohort.node_count.cpu() / total)[owner]).to(cohort.device)
