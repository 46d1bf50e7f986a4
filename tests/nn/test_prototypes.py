"""Class means by hand, and what the nearest prototype says."""

from __future__ import annotations

import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.group_sums import Groups
from fedquilt.nn.prototypes import BEHIND, class_groups, class_means, nearest_scores
from support.federations import ragged_clients

CLIENTS = ragged_clients((12, 9, 14))


def test_class_means_by_hand() -> None:
    groups = Groups(torch.tensor([0, 2, 0]), 4)
    found = class_means(groups, torch.tensor([[1.0, 2.0], [5.0, 6.0], [3.0, 4.0]]))
    assert found.tolist() == [[2.0, 3.0], [0.0, 0.0], [5.0, 6.0], [0.0, 0.0]]


def test_a_class_without_a_prototype_comes_last_and_nothing_is_infinite() -> None:
    cohort = Cohort(CLIENTS[:1])
    z = torch.randn(cohort.rows, 4)
    known = torch.tensor([[1.0, 0.0, 1.0]])
    scores = nearest_scores(cohort, z, torch.randn(1, 3, 4), known)
    assert torch.allclose(scores[:, 1], scores[:, [0, 2]].amin(1) - BEHIND)
    assert nearest_scores(cohort, z, torch.zeros(1, 3, 4), torch.zeros(1, 3)).isfinite().all()


def test_the_nearest_of_each_clients_own_prototypes() -> None:
    cohort = Cohort(CLIENTS)
    stream = torch.Generator().manual_seed(0)
    z, points = torch.randn(cohort.rows, 4, generator=stream), torch.randn(3, 3, 4, generator=stream)
    scores = nearest_scores(cohort, z, points, torch.ones(3, 3))
    distance = (z.unsqueeze(1) - points[cohort.client]).square().sum(2)
    assert torch.allclose(scores, z.square().sum(1, keepdim=True) - distance, atol=1e-4)
    assert class_groups(cohort) is class_groups(cohort)
