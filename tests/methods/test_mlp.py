"""MLP is Local on features alone: edges change nothing, and nothing crosses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedquilt.cohort.client import Client
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import State
from fedquilt.training.plan import Plan
from support.federations import make_method, make_training, ragged_clients


def trained(name: str, clients: Sequence[Client], **settings: Any) -> State:
    training = make_training(make_method(name, clients, **settings), clients, Plan(3))
    progress = training.run()
    assert progress.upload_bytes == progress.download_bytes == 0
    return training.engine.personal()


def assert_same(one: State, two: State) -> None:
    assert list(one) == list(two)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_it_is_local_with_model_mlp() -> None:
    clients = ragged_clients()
    found = trained("mlp", clients)
    assert_same(found, trained("local", clients, model="mlp"))
    gcn = trained("local", clients)
    assert not torch.equal(found["conv1.weight"], gcn["conv1.weight"])


def test_edges_change_nothing() -> None:
    clients = ragged_clients()
    apart = [replace(c, graph=replace(c.graph, edges=np.zeros((2, 0), np.int64))) for c in clients]
    assert_same(trained("mlp", clients), trained("mlp", apart))
    assert make_method("mlp", clients).ignores_edge_weights() == "model=mlp does not read edges"


@pytest.mark.parametrize("model", ["gcn", "gamlp"])
def test_a_network_that_reads_edges_is_refused(model: str) -> None:
    with pytest.raises(FedquiltError, match=rf"^Method 'mlp' trains on features alone, so that model={model} is not"):
        make_method("mlp", ragged_clients(), model=model)
