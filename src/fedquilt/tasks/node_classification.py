"""What clients minimise and what they are measured by, client by client."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.cohort import Cohort


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
    """Each client's area under the ROC curve for class 1 of two, by ranks with ties halved: [M], all clients at once.

    NaN where a client has no such row, or rows of one class only: the area is undefined there.
    """
    score = (logits[index, 1] - logits[index, 0]).double()
    owner = cohort.client[index]
    order = score.argsort(stable=True)
    order = order[owner[order].argsort(stable=True)]  # client by client, rising scores in each
    score, owner, positive = score[order], owner[order], (cohort.y[index] == 1)[order].double()
    rank = torch.arange(len(score), device=score.device, dtype=torch.float64)
    # Equal scores of a client share the mean of their ranks.
    changes = (score[1:] != score[:-1]) | (owner[1:] != owner[:-1])
    tie = F.pad(changes.long(), (1, 0)).cumsum(0)[: len(rank)]
    one = torch.ones_like(rank)
    shared = torch.zeros_like(rank).index_add_(0, tie, rank) / torch.zeros_like(rank).index_add_(0, tie, one)
    per_client = torch.zeros(3, cohort.clients, device=score.device, dtype=torch.float64)
    ones, positives, ranks = per_client.index_add_(1, owner, torch.stack([one, positive, positive * shared[tie]]))
    first = ones.cumsum(0) - ones  # rows of the clients before
    above = ranks - positives * first - positives * (positives - 1) / 2
    return (above / (positives * (ones - positives))).float()


METRICS = {"accuracy": accuracy, "auc": auc}
