"""Prototypes: a point for each class of each client, the mean of its training nodes, and prediction by the nearest."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.group_sums import Groups
from fedquilt.nn.class_gaussians import training_classes

BEHIND = 10.0  # how far behind the last class that has a prototype one without comes


def class_groups(cohort: Cohort) -> Groups:
    """The training nodes grouped by client and class, computed once."""
    groups: Groups = cohort.once("training classes", training_classes)
    return groups


def class_means(groups: Groups, embedding: Tensor) -> Tensor:
    """The mean of each group's rows, zero for an empty group: [T, D] -> [G, D]."""
    share = 1.0 / groups.counts.float().clamp_min(1.0)
    return groups.sum(embedding * share[groups.index].unsqueeze(1))


def nearest_scores(cohort: Cohort, embedding: Tensor, prototypes: Tensor, known: Tensor) -> Tensor:
    """-|z - p_c|^2 + |z|^2 for every class c with a prototype: [R, D], [M, C, D], [M, C] -> [R, C].

    Classes without a prototype come `BEHIND` the last one that has it.
    """
    length = prototypes.square().sum(2)
    scores = cohort.add(cohort.multiply(embedding, 2.0 * prototypes.mT), -length)
    here = known[cohort.client] > 0
    last = torch.where(here, scores, torch.inf).amin(1, keepdim=True)
    return torch.where(here, scores, torch.where(last.isfinite(), last, 0.0) - BEHIND)
