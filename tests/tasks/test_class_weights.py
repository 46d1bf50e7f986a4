"""Class weights of a loss: how they are written, and what they do to each client's loss and gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws
from fedquilt.errors import FedquiltError
from fedquilt.graphs.split import TRAIN
from fedquilt.tasks.base import Task
from fedquilt.tasks.class_weights import parse_weights, row_weights
from fedquilt.tasks.node_classification import NodeClassification
from support.clients import PADDING, assert_near, client_lists, lay
from support.federations import ragged_clients

NO_DRAWS = Draws(torch.zeros(0, dtype=torch.int64), 0)  # this task samples nothing


def random_logits(cohort: Cohort, seed: int) -> torch.Tensor:
    stream = torch.Generator().manual_seed(seed)
    return cohort.rows_of([torch.randn(n, 3, generator=stream) for n in cohort.sizes], 9.0)


@pytest.mark.parametrize("rows", PADDING)
@pytest.mark.parametrize("asked", ["balanced", "1,2.5,0.5"])
@given(clients=client_lists(classes=3))
def test_a_clients_loss_is_its_own_weighted_mean(rows: str, asked: str, clients: list[Client]) -> None:
    """As PyTorch's: sum w(y) l / sum w(y), by the client's own counts where they are balanced."""
    cohort = lay(clients, rows)
    logits = random_logits(cohort, 0).requires_grad_()
    total, each = NodeClassification().weighted(asked, 3).training_loss(cohort, logits[cohort.training.index], NO_DRAWS)
    total.backward()
    for m, client in enumerate(clients):
        chosen = np.flatnonzero((client.split == TRAIN) & (client.graph.y >= 0))
        mine = cohort.parts_of(logits.detach())[m].double().requires_grad_()
        if not len(chosen):
            assert each[m].isnan()
            continue
        y = torch.from_numpy(client.graph.y[chosen])
        counts = torch.bincount(y, minlength=3)
        weight = 1.0 / counts.clamp_min(1).double() if asked == "balanced" else torch.tensor([1, 2.5, 0.5]).double()
        loss = F.cross_entropy(mine[chosen], y, weight=weight)
        loss.backward()
        assert_near(each[m], loss.detach())
        assert_near(cohort.parts_of(logits.grad)[m], mine.grad)


def test_every_class_of_a_client_has_the_same_share() -> None:
    labels, owner = torch.tensor([0, 0, 0, 1, 2, 2]), torch.tensor([0, 0, 0, 0, 1, 1])
    assert row_weights(labels, owner, 3, 3, None).tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2, 1 / 2, 1 / 2])
    assert row_weights(labels, owner, 3, 3, (1.0, 3.0, 9.0)).tolist() == pytest.approx([1 / 6] * 3 + [1 / 2] * 3)


def test_none_is_the_plain_loss_to_the_bit() -> None:
    cohort = lay(ragged_clients((14, 9, 18)))
    logits = random_logits(cohort, 1)[cohort.training.index]
    plain = NodeClassification().training_loss(cohort, logits, NO_DRAWS)
    none = NodeClassification().weighted("none", 3).training_loss(cohort, logits, NO_DRAWS)
    assert torch.equal(plain[0], none[0])
    assert torch.equal(plain[1], none[1])


def test_weights_are_read_and_bounded() -> None:
    assert parse_weights("none", 3) is parse_weights("balanced", 3) is None
    assert parse_weights("1, 2,0.5", 3) == (1.0, 2.0, 0.5)
    for text, words in {
        "heavy": "cannot be read",
        "1,2": "2 class weights for 3 classes",
        "1,2,0": "larger than 0",
        "1,2,nan": "larger than 0",
        "1,1,1e9": "1,000,000 times as large",
    }.items():
        with pytest.raises(FedquiltError, match=words):
            parse_weights(text, 3)


def test_a_task_without_classes_has_none_to_weight() -> None:
    task = NodeClassification()
    assert Task.weighted(task, "none", 1) is task
    with pytest.raises(FedquiltError, match="has no classes to weight"):
        Task.weighted(task, "balanced", 1)
