"""FedAvg against a plain loop over PyTorch Geometric models."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.nn.models import common_start
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import Wiretap, make_method, make_task, make_training, pyg_loop, ragged_clients


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_rounds_equal_a_plain_loop(rounds: int, sparse: bool, epochs: int, decay: float) -> None:
    clients = ragged_clients(sparse=sparse)
    settings = {"dropout": 0.0, "lr": 0.02, "weight_decay": decay}
    method = make_method("fedavg", clients, make_task(clients, epochs=epochs), **settings)
    start = common_start(method.shapes(), 3, len(clients), torch.device("cpu"))
    own, mean = pyg_loop(clients, start, rounds, epochs, 0.02, weight_decay=decay)
    training = make_training(method, clients, Plan(rounds + 1))
    training.advance(rounds)
    found = training.engine.personal()
    for name, stacked in found.items():
        assert_near(stacked, torch.stack([weights[name] for weights in own]))
        # What the next round's clients are sent: one tensor for all, weighted by training nodes.
        assert_near(training.down[f"model.{name}"], mean[name])
    assert set(training.down) == {f"model.{name}" for name in found}


def test_what_is_sent() -> None:
    clients = ragged_clients()
    training = make_training(make_method("fedavg", clients), clients, Plan(3))
    tap = Wiretap(training.engine)
    training.run()
    assert tap.downs[0] == {}  # everybody starts from the same seed
    counts = [int(((c.split == 0) & (c.graph.y >= 0)).sum()) for c in clients]
    for up, down in zip(tap.ups[:-1], tap.downs[1:], strict=True):
        assert up["train_nodes"].tolist() == counts
        share = np.array(counts) / sum(counts)
        for name, tensor in down.items():
            expected = np.tensordot(share, up[name].double().numpy(), axes=1)
            assert tensor.shape == expected.shape
            assert_near(tensor, torch.from_numpy(expected))


def test_only_participants_are_averaged() -> None:
    clients = ragged_clients()
    method = make_method("fedavg", clients)
    training = make_training(method, clients, Plan(3, participation=0.4))
    tap = Wiretap(training.engine)
    training.run()
    for record, up in zip(training.records, tap.ups, strict=True):
        assert len(record["participants"]) == len(up["train_nodes"]) == 2
        counts = [int(training.engine.parts[0].cohort.train_count[m]) for m in record["participants"]]
        assert up["train_nodes"].tolist() == counts
