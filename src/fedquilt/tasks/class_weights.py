"""Class weights of a training loss: none, balanced by each client's own training labels, or a weight a class.

A client's loss is sum_i w(y_i) l_i / sum_i w(y_i) over its training nodes: a weighted mean, so that the learning rate means the
same with and without weights. Balanced weights are w(c) = 1 / n_c, where n_c counts the client's own training nodes of class c:
every class that it trains on has the same share of its loss. They need nothing of other clients, and nothing of them leaves a
client.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedquilt.errors import FedquiltError

NONE, BALANCED = "none", "balanced"
LARGEST = 1e6  # ratio of two weights


def parse_weights(text: str, classes: int) -> tuple[float, ...] | None:
    """The weights in a text such as "1,1,3.5", one a class; None for none and balanced, which have no fixed ones."""
    if text in (NONE, BALANCED):
        return None
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise FedquiltError(
            f"The class weights '{text}' cannot be read; write none, balanced, or a number for each class, such as 1,1,3.5."
        ) from None
    if len(weights) != classes:
        raise FedquiltError(f"There are {len(weights)} class weights for {classes} classes; give one for each class.")
    if not all(math.isfinite(weight) and weight > 0 for weight in weights) or max(weights) > LARGEST * min(weights):
        raise FedquiltError(
            f"Class weights have to be larger than 0 and at most {LARGEST:,.0f} times as large as one another."
        )
    return weights


def class_counts(labels: Tensor, owner: Tensor, clients: int, classes: int) -> Tensor:
    """[M C] float64: how many of the rows [T] with these labels and clients are of each client and class."""
    cell = owner * classes + labels
    counts = torch.zeros(clients * classes, dtype=torch.float64, device=labels.device)
    return counts.index_add_(0, cell, torch.ones_like(cell, dtype=torch.float64))


def row_weights(
    labels: Tensor,
    owner: Tensor,
    clients: int,
    classes: int,
    fixed: tuple[float, ...] | None,
    counts: Tensor | None = None,
) -> Tensor:
    """[T] float32: each row's share of its client's loss, so that the shares of a client sum to one.

    Args:
        labels, owner: [T] the class and the client of each training row.
        clients, classes: M and C.
        fixed: a weight a class; None: balanced.
        counts: [M C] the training nodes of each client and class by which weights are balanced, where the rows are only some
            of them; None: the rows' own.
    """
    cell = owner * classes + labels
    if fixed is None:
        weight = 1.0 / (class_counts(labels, owner, clients, classes) if counts is None else counts)[cell]
    else:
        weight = torch.tensor(fixed, dtype=torch.float64, device=labels.device)[labels]
    total = torch.zeros(clients, dtype=torch.float64, device=labels.device).index_add_(0, owner, weight)
    return (weight / total[owner]).float()
