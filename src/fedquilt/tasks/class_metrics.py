"""Metrics of a classification, for many clients at once: from the outputs and labels of some rows to a number a client.

Every function takes logits [T, C], labels [T] (0..C-1), the client of each row, owner [T], and M, the number of clients; it
returns [M], NaN where the metric is undefined for a client. Rows are in any order. Shapes do not depend on values and nothing
is read on the host, so that all of them can be captured in a CUDA graph.

A client often lacks a class. Each function says which classes its mean then goes over: those of scikit-learn, where that has an
answer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

ECE_BINS = 15


def confusion(logits: Tensor, labels: Tensor, owner: Tensor, clients: int) -> Tensor:
    """Counts [M, C, C] int64: rows are true classes, columns predicted ones."""
    width = logits.shape[1]
    cell = (owner * width + labels) * width + logits.argmax(1)
    counts = torch.zeros(clients * width * width, dtype=torch.int64, device=logits.device)
    return counts.index_add_(0, cell, torch.ones_like(cell)).view(clients, width, width)


def macro_f1(logits: Tensor, labels: Tensor, owner: Tensor, clients: int) -> Tensor:
    """The mean of F1_c = 2 TP_c / (labelled_c + predicted_c) over the classes among a client's labels or predictions."""
    counts = confusion(logits, labels, owner, clients).double()
    right, both = counts.diagonal(dim1=1, dim2=2), counts.sum(1) + counts.sum(2)
    return _mean_where(2.0 * right / both.clamp_min(1.0), both > 0)


def balanced_accuracy(logits: Tensor, labels: Tensor, owner: Tensor, clients: int) -> Tensor:
    """The mean of recall_c = TP_c / labelled_c over the classes that are among a client's labels."""
    counts = confusion(logits, labels, owner, clients).double()
    labelled = counts.sum(2)
    return _mean_where(counts.diagonal(dim1=1, dim2=2) / labelled.clamp_min(1.0), labelled > 0)


def auc(logits: Tensor, labels: Tensor, owner: Tensor, clients: int) -> Tensor:
    """The area under the ROC curve: of class 1 where there are two, else the mean over classes of one against the rest.

    The mean goes over the classes that a client has both rows of and other rows than: the area is defined for them.
    """
    if logits.shape[1] == 2:
        return area_under_roc((logits[:, 1] - logits[:, 0]).double(), labels == 1, owner, clients)
    return _over_classes(area_under_roc, logits, labels, owner, clients)


def average_precision(logits: Tensor, labels: Tensor, owner: Tensor, clients: int) -> Tensor:
    """The average precision: of class 1 where there are two, else the mean over the classes among a client's labels."""
    if logits.shape[1] == 2:
        return precision_average((logits[:, 1] - logits[:, 0]).double(), labels == 1, owner, clients)
    return _over_classes(precision_average, logits, labels, owner, clients)


def log_loss(logits: Tensor, labels: Tensor, owner: Tensor, clients: int) -> Tensor:
    """The mean of -log p(label), natural logarithm."""
    each = F.cross_entropy(logits.double(), labels, reduction="none")
    sums = _sums(torch.stack([each, torch.ones_like(each)]), owner, clients)
    return (sums[0] / sums[1]).float()


def calibration_error(logits: Tensor, labels: Tensor, owner: Tensor, clients: int) -> Tensor:
    """The expected calibration error: sum over 15 equal bins of confidence of (rows in it / rows) |accuracy - confidence|.

    The confidence of a row is the probability of its most likely class; bin b holds those in (b/15, (b+1)/15].
    """
    confidence, predicted = logits.double().softmax(1).max(1)
    place = (confidence * ECE_BINS).ceil().long().clamp(1, ECE_BINS) - 1
    gap = (predicted == labels).double() - confidence
    bins = _sums(torch.stack([gap, torch.ones_like(gap)]), owner * ECE_BINS + place, clients * ECE_BINS)
    gaps, rows = bins.view(2, clients, ECE_BINS)
    return (gaps.abs().sum(1) / rows.sum(1)).float()


# --- rankings


def area_under_roc(score: Tensor, positive: Tensor, owner: Tensor, clients: int) -> Tensor:
    """Each client's share of (positive, other) pairs in the right order, ties for a half: [M]; NaN without a pair.

    By ranks, all clients at once; equal scores share the mean of their ranks.
    """
    order, tie = _ranked(score, owner)
    owner, right = owner[order], positive[order].double()
    one = torch.ones_like(right)
    rank = torch.arange(len(right), device=score.device, dtype=torch.float64)
    shared = torch.zeros_like(rank).index_add_(0, tie, rank) / torch.zeros_like(rank).index_add_(0, tie, one)
    ones, positives, ranks = _sums(torch.stack([one, right, right * shared[tie]]), owner, clients)
    first = ones.cumsum(0) - ones  # rows of the clients before
    above = ranks - positives * first - positives * (positives - 1) / 2
    return (above / (positives * (ones - positives))).float()


def precision_average(score: Tensor, positive: Tensor, owner: Tensor, clients: int) -> Tensor:
    """Each client's sum over thresholds of (recall gained) x (precision there): [M]; NaN without a positive row."""
    order, tie = _ranked(-score, owner)
    owner, right = owner[order], positive[order].double()
    one = torch.ones_like(right)
    ones, positives = _sums(torch.stack([one, right]), owner, clients)
    # Rows and positives of a client down to the end of a row's tie: its threshold takes all of them.
    until = _sums(torch.stack([one, right]), tie, len(one)).cumsum(1)[:, tie]
    before = torch.stack([ones, positives]).cumsum(1) - torch.stack([ones, positives])
    rows, hits = until - before[:, owner]
    found = torch.zeros_like(ones).index_add_(0, owner, right * hits / rows)
    return (found / positives).float()


def _ranked(score: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
    """The order of the rows, client by client with rising scores in each, and the number of each place's tie: [T], [T]."""
    order = score.argsort(stable=True)
    order = order[owner[order].argsort(stable=True)]
    sorted_score, sorted_owner = score[order], owner[order]
    changes = (sorted_score[1:] != sorted_score[:-1]) | (sorted_owner[1:] != sorted_owner[:-1])
    return order, F.pad(changes.long(), (1, 0)).cumsum(0)[: len(score)]


# --- means


Ranking = Callable[[Tensor, Tensor, Tensor, int], Tensor]


def _over_classes(ranking: Ranking, logits: Tensor, labels: Tensor, owner: Tensor, clients: int) -> Tensor:
    """The mean of a ranking's value over the classes for which a client has one."""
    chances = logits.double().softmax(1)
    each = torch.stack([ranking(chances[:, c], labels == c, owner, clients) for c in range(logits.shape[1])], dim=1)
    return _mean_where(each.nan_to_num().double(), ~each.isnan())


def _mean_where(values: Tensor, there: Tensor) -> Tensor:
    """The mean over the last axis of the values that are there: [M, C] -> [M] float32; NaN where none is."""
    return ((values * there).sum(1) / there.sum(1)).float()


def _sums(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """The sums of [K, T] values by the group of each of the T: [K, groups] float64."""
    return torch.zeros(len(values), groups, device=values.device, dtype=torch.float64).index_add_(1, group, values)
