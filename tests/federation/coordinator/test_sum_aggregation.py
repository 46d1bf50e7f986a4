"""The server's step on a sum: the method's own, or a sentence where no honest uploads lead to it."""

from __future__ import annotations

import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.sum_aggregation import SumAggregation
from fedquilt.messages.message import Message
from support.federations import make_method, ragged_clients

ALL = torch.arange(3)


def sums(weight: float, nodes: float) -> Message:
    """As an engine gives them: the sum in the place of each sender's."""
    found = {"model.w": torch.full((2, 2), weight), "train_nodes": torch.tensor(nodes)}
    return {name: value.double().expand(3, *value.shape) for name, value in found.items()}


def test_the_sum_is_averaged() -> None:
    aggregate = SumAggregation(make_method("fedavg", ragged_clients((9, 9, 9))), 64.0)
    down = aggregate({}, sums(30.0, 12.0), ALL, ALL)
    assert down["model.w"].tolist() == [[2.5, 2.5], [2.5, 2.5]]


@pytest.mark.parametrize(("weight", "nodes"), [(65.0 * 12, 12.0), (3.0, 0.0), (0.0, 0.0), (3.0, 1e-9)])
def test_an_average_that_no_uploads_can_have_is_refused(weight: float, nodes: float) -> None:
    aggregate = SumAggregation(make_method("fedavg", ragged_clients((9, 9, 9))), 64.0)
    with pytest.raises(FedquiltError, match="an average that no uploads can have: a site did not keep to the protocol"):
        aggregate({}, sums(weight, nodes), ALL, ALL)
