"""FedSage is FedAvg with GraphSAGE, and nothing else."""

from __future__ import annotations

import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.training.plan import Plan
from support.federations import make_method, make_training, ragged_clients


def test_it_trains_as_fedavg_with_graphsage() -> None:
    clients = ragged_clients((12, 9, 14))
    found = []
    for name, settings in (("fedsage", {}), ("fedavg", {"model": "sage"}), ("fedavg", {})):
        training = make_training(make_method(name, clients, **settings), clients, Plan(3))
        training.run()
        found.append(training.engine.personal())
    own, same, other = found
    assert own.keys() == same.keys()
    assert all(torch.equal(own[name], same[name]) for name in own)
    assert own.keys() != other.keys()


def test_another_backbone_is_one_sentence() -> None:
    with pytest.raises(FedquiltError, match=r"FedSage trains GraphSAGE, not gcn: .* --method fedavg --set model=gcn"):
        make_method("fedsage", ragged_clients((12,)), model="gcn")
