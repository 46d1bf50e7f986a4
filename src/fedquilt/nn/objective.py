"""What clients minimise and what they are measured by, client by client."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort import Cohort


def training_loss(cohort: Cohort, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy on the training nodes: the sum of the clients' own means (to differentiate), and each mean [M].

    Args:
        cohort: the clients.
        logits: [T, C], the rows of `cohort.training`.
    """
    each = F.cross_entropy(logits[cohort.training.real], cohort.y[cohort.train], reduction="none")
    return (each * cohort.train_weight).sum(), cohort.mean_over(each.detach(), cohort.train)


def losses(cohort: Cohort, logits: Tensor, index: Tensor) -> Tensor:
    """Each client's mean cross-entropy on the rows `index`: [M], NaN where it has none."""
    each = F.cross_entropy(logits[index], cohort.y[index], reduction="none")
    return cohort.mean_over(each, index)


def accuracy(cohort: Cohort, logits: Tensor, index: Tensor) -> Tensor:
    """Each client's share of right answers on the rows `index`: [M], NaN where it has none."""
    return cohort.mean_over((logits[index].argmax(1) == cohort.y[index]).float(), index)


def auc(cohort: Cohort, logits: Tensor, index: Tensor) -> Tensor:
    """Each client's area under the ROC curve for class 1 of two, by ranks with ties halved: [M].

    NaN where a client has no such row, or rows of one class only: the area is undefined there.
    """
    score = (logits[index, 1] - logits[index, 0]).double()
    positive = cohort.y[index] == 1
    owner = cohort.client[index]
    out = torch.full((cohort.clients,), torch.nan, device=logits.device)
    for m in range(cohort.clients):
        mine = owner == m
        pos, neg = score[mine & positive], score[mine & ~positive]
        if len(pos) and len(neg):
            ordered = neg.sort().values
            below = torch.searchsorted(ordered, pos, right=False) + torch.searchsorted(ordered, pos, right=True)
            out[m] = below.double().mean() / (2 * len(neg))
    return out


METRICS = {"accuracy": accuracy, "auc": auc}
