"""GraphSAGE over a mended graph: each node has generated neighbours beside its own (`fedquilt.nn.neighbour_generator`).

A generated neighbour has the features code times basis, weighs one in the mean, as an edge does on average, and its only
neighbour is the node that it was generated for. Generated neighbours take part in every layer; nothing is predicted for them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.rows import Rows
from fedquilt.nn import layers
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.look_alikes import degrees
from fedquilt.nn.models import activate, part
from fedquilt.nn.neighbour_generator import Generated

GENERATED_LAYER = 32  # added to a layer's number: dropout of generated neighbours draws other numbers


def mended_sage(
    cohort: Cohort,
    weights: Weights,
    made: Generated,
    basis: Tensor,
    depth: int,
    dropout: Dropout | None = None,
    training: bool = False,
) -> Tensor:
    """The logits of GraphSAGE of `depth` layers and a classifier: at every row [R, C], or at the training rows.

    Args:
        made: the generated neighbours. basis: [M, D, F], by which codes become features.
    """
    before = degrees(cohort)
    after = (before + made.count).clamp_min(1.0).unsqueeze(1)
    kept = before.unsqueeze(1) / after
    exists = (torch.arange(made.codes.shape[1], device=after.device) < made.count.unsqueeze(1)).unsqueeze(2)
    w = part(weights, "conv1.")
    mixed = (cohort.mean_x @ w["weight"]) * kept
    mixed = mixed + cohort.multiply(made.codes.sum(1) / after, basis @ w["weight"])
    z = cohort.add(mixed + cohort.x @ w["root"], w["bias"])
    # What the generated neighbours' layers take: from the node that they belong to, and from themselves.
    from_node, own, root = cohort.x @ w["weight"], made.codes, basis @ w["root"]
    for number in range(2, depth + 1):
        at_training = training and number == depth
        index = cohort.training.index if at_training else None
        rows: Rows = cohort.training if at_training else cohort
        bias = w["bias"][rows.client].unsqueeze(1)
        new = _at(from_node, index).unsqueeze(1) + multiply_each(rows, _at(own, index), root) + bias
        shape = new.shape
        new = activate(rows, new.flatten(1), dropout, GENERATED_LAYER + number - 2).view(shape)
        new = torch.where(_at(exists, index), new, 0.0)
        h = activate(cohort, z, dropout, number - 2)
        w = part(weights, f"conv{number}.")
        mean = (cohort.training.mean if at_training else cohort.mean) @ h
        mixed = mean * _at(kept, index) + new.sum(1) / _at(after, index)
        z = rows.add(rows.multiply(mixed, w["weight"]) + rows.multiply(_at(h, index), w["root"]), w["bias"])
        if number < depth:
            from_node, own, root = cohort.multiply(h, w["weight"]), new, w["root"]
    rows = cohort.training if training else cohort
    if training and depth == 1:
        z = z[cohort.training.index]
    h = activate(rows, z, dropout, depth - 1)
    return layers.linear(rows, h, weights["classifier.weight"], weights["classifier.bias"])


def _at(values: Tensor, index: Tensor | None) -> Tensor:
    return values if index is None else values[index]


def multiply_each(rows: Rows, stacks: Tensor, weight: Tensor) -> Tensor:
    """Each of a row's g vectors times its client's weights: [R, g, K], [M, K, H] -> [R, g, H]."""
    count, inside = stacks.shape[1:]
    if rows.length is not None:
        wide = stacks.reshape(rows.clients, rows.length * count, inside)
        return torch.bmm(wide, weight).view(rows.rows, count, weight.shape[2])
    return torch.cat([part @ w for part, w in zip(stacks.split(rows.spans), weight, strict=True)])
