"""Local: each client alone."""

from __future__ import annotations

import torch

from fedquilt.nn.models import common_start
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import Wiretap, make_method, make_training, pyg_loop, ragged_clients


def test_nothing_crosses() -> None:
    clients = ragged_clients()
    training = make_training(make_method("local", clients), clients, Plan(3))
    tap = Wiretap(training.engine)
    progress = training.run()
    assert progress.upload_bytes == progress.download_bytes == 0
    assert tap.ups == tap.downs == [{}] * 3
    assert all(record["bytes_up"] == record["bytes_down"] == {} for record in training.records)


def test_each_client_trains_alone() -> None:
    clients = ragged_clients()
    method = make_method("local", clients, dropout=0.0, lr=0.005)
    start = common_start(method.shapes(), 3, len(clients), torch.device("cpu"))
    own, _ = pyg_loop(clients, start, 1, 4, 0.005)  # four rounds of one epoch are one round of four
    training = make_training(method, clients, Plan(4))
    training.run()
    for name, stacked in training.engine.personal().items():
        assert_near(stacked, torch.stack([weights[name] for weights in own]))
    # Another federation around a client changes nothing for it.
    others = [clients[0], *ragged_clients(seed=5)[1:]]
    again = make_training(make_method("local", others, dropout=0.0, lr=0.005), others, Plan(4))
    again.run()
    for name, stacked in again.engine.personal().items():
        assert_near(stacked[0], own[0][name])
