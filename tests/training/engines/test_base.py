"""Evaluations: their fields as one tensor, and the sentence where outputs are not finite."""

from __future__ import annotations

import math
import re

import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.training.engines.base import EVALUATION_FIELDS, Evaluation


def evaluation(finite: list[float]) -> Evaluation:
    other = torch.full((4, len(finite)), math.nan)
    return Evaluation(*other, torch.tensor(finite))


def test_fields_are_stacked_in_their_order() -> None:
    rows = torch.arange(15.0).view(5, 3)
    assert torch.equal(Evaluation(*rows).stacked(), rows)
    assert EVALUATION_FIELDS == ("train_loss", "val_loss", "val", "test", "finite")


@pytest.mark.parametrize(
    ("finite", "first", "says"),
    [
        ([1, 0, 1], 0, "from the model of client 1 any more; use a smaller learning rate (--set lr=...)."),
        ([1, 0, 1], 10, "from the model of client 11 any more"),
        ([0, 1, 0], 0, "from the models of clients 0, 2 any more"),
        ([0] * 7, 0, "from the models of clients 0, 1, 2, 3, 4 and others any more"),
    ],
)
def test_outputs_that_are_not_finite_are_one_sentence(finite: list[float], first: int, says: str) -> None:
    with pytest.raises(FedquiltError, match=re.escape(says)):
        evaluation(finite).check_finite(first)


def test_finite_outputs_pass_whatever_the_metrics_are() -> None:
    evaluation([1, 1]).check_finite()
