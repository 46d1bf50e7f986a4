"""FedPer: graph layers are shared, classifiers stay at home."""

from __future__ import annotations

import torch

from fedquilt.nn.models import common_start
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import Wiretap, make_method, make_training, pyg_loop, ragged_clients


def test_the_classifier_never_crosses() -> None:
    clients = ragged_clients()
    training = make_training(make_method("fedper", clients), clients, Plan(4, participation=0.6))
    tap = Wiretap(training.engine)
    training.run()
    layers = {f"model.conv{i}.{kind}" for i in (1, 2) for kind in ("weight", "bias")}
    assert all(set(up) == layers | {"train_nodes"} for up in tap.ups)
    assert all(set(down) == layers for down in tap.downs[1:])


def test_graph_layers_agree_after_receiving_and_classifiers_differ() -> None:
    clients = ragged_clients()
    method = make_method("fedper", clients)
    training = make_training(method, clients, Plan(4))
    training.run()
    state = {name: tensor.clone() for name, tensor in training.engine.parts[0].state.items()}
    before = {name: tensor.clone() for name, tensor in state.items()}
    method.receive(state, training.down)
    for name in ("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"):
        received = state[f"model.{name}"]
        assert torch.equal(received, training.down[f"model.{name}"].expand_as(received))
        assert not torch.equal(before[f"model.{name}"], received)
    for name in ("classifier.weight", "classifier.bias"):
        own = state[f"model.{name}"]
        assert torch.equal(own, before[f"model.{name}"])
        assert all(not torch.equal(own[0], other) for other in own[1:])


def test_rounds_equal_a_plain_loop() -> None:
    clients = ragged_clients()
    method = make_method("fedper", clients, dropout=0.0, lr=0.01)
    start = common_start(method.shapes(), 3, len(clients), torch.device("cpu"))
    own, _ = pyg_loop(clients, start, 3, 1, 0.01, average=lambda name: name.startswith("conv"))
    training = make_training(method, clients, Plan(3))
    training.run()
    for name, stacked in training.engine.personal().items():
        assert_near(stacked, torch.stack([weights[name] for weights in own]))


def test_all_models_keep_their_classifier() -> None:
    clients = ragged_clients()
    for model in ("sage", "gat", "mlp"):
        method = make_method("fedper", clients, model=model)
        shared = {name for name in method.model.shapes() if method.shares(name)}
        assert set(method.model.shapes()) - shared == {"classifier.weight", "classifier.bias"}
