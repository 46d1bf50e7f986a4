"""Ditto: two models a client, against a plain loop; one is FedAvg's, the other is pulled toward it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.methods.base_adam import KEYS
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.models import common_start
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import (
    PlainGcn,
    Wiretap,
    make_method,
    make_task,
    make_training,
    pyg_loop,
    ragged_clients,
)


def train(name: str, epochs: int = 2, rounds: int = 3, participation: float = 1.0, **settings: Any) -> Training:
    clients = ragged_clients()
    method = make_method(name, clients, make_task(clients, epochs=epochs), **settings)
    training = make_training(method, clients, Plan(rounds, participation))
    training.run()
    return training


def test_rounds_equal_a_plain_loop() -> None:
    clients, lr, pull = ragged_clients(), 0.01, 7.0
    method = make_method("ditto", clients, make_task(clients, epochs=2), dropout=0.0, lr=lr, pull=pull)
    start = common_start(method.shapes(), 3, len(clients), torch.device("cpu"))
    nets = [PlainGcn(client, {name: w[m] for name, w in start.items()}) for m, client in enumerate(clients)]
    optimisers = [torch.optim.Adam(net.parameters(), lr=lr) for net in nets]
    for rounds in range(3):
        # What is sent is FedAvg's: the personal models do not come into it.
        sent = pyg_loop(clients, start, rounds, 2, lr)[1] if rounds else {name: w[0] for name, w in start.items()}
        for net, optimiser in zip(nets, optimisers, strict=True):
            for _ in range(2):
                optimiser.zero_grad()
                loss = torch.nn.functional.cross_entropy(net()[net.train_nodes], net.y[net.train_nodes])
                loss.backward()
                optimiser.step()
                # The v that minimises |v - v'|^2 / (2 lr) + (lambda / 2) |v - w|^2.
                net.load({n: (w + lr * pull * sent[n]) / (1 + lr * pull) for n, w in net.weights().items()})
    training = make_training(method, clients, Plan(4))
    training.advance(3)
    mean = pyg_loop(clients, start, 3, 2, lr)[1]
    for name, stacked in training.engine.personal().items():
        assert_near(stacked, torch.stack([net.weights()[name] for net in nets]))
        assert_near(training.down[f"model.{name}"], mean[name])


def test_a_client_with_its_own_learning_rate_is_pulled_by_it() -> None:
    clients = ragged_clients()
    clients[1].settings["lr"] = 0.05
    method = make_method("ditto", clients, lr=0.01, pull=10.0)
    share = method.pulled(Cohort(clients))
    assert share.tolist() == pytest.approx([0.1 / 1.1, 0.5 / 1.5, *[0.1 / 1.1] * 3])
    assert method.pulled(Cohort(ragged_clients())) == pytest.approx(0.1 / 1.1)
    cohort, state = Cohort(clients), method.start(Cohort(clients))
    sent = {f"model.{name}": torch.randn(shape) for name, shape in method.shapes().items()}
    free = {name: tensor.clone() for name, tensor in state.items()}
    unpulled = make_method("ditto", clients, lr=0.01, pull=0.0)
    method.step(state, cohort, sent, Dropout(0.5, state[KEYS], 0))
    unpulled.step(free, cohort, sent, Dropout(0.5, free[KEYS], 0))
    for name, value in sent.items():
        own, part = name.replace("model.", "personal."), share.view(-1, *[1] * value.dim())
        assert torch.equal(state[name], free[name])
        assert_near(state[own], free[own] + part * (value - free[own]))


def test_without_a_pull_it_is_local_beside_fedavg() -> None:
    ditto, local, fedavg = train("ditto", pull=0.0, lr=0.01), train("local", lr=0.01), train("fedavg", lr=0.01)
    for name, own in ditto.engine.personal().items():
        assert torch.equal(own, local.engine.personal()[name])
        shared = ditto.engine.parts[0].state[f"model.{name}"]
        assert torch.equal(shared, fedavg.engine.personal()[name])


def test_a_stronger_pull_brings_the_models_together() -> None:
    gaps = []
    for pull in (0.0, 10.0, 1000.0):
        training = train("ditto", rounds=6, pull=pull)
        (gap,) = training.method.findings({}, training.engine.parts[0].state).values()
        assert gap.shape == (5,)
        gaps.append(float(gap.mean()))
    assert gaps[0] > 1.2 * gaps[1] > 1.2 * gaps[2] > 0


def test_decay_and_clipping_act_on_the_personal_model_too() -> None:
    plain = train("local", lr=0.01, weight_decay=0.01, clip=0.05).engine.personal()
    own = train("ditto", lr=0.01, weight_decay=0.01, clip=0.05, pull=0.0).engine.personal()
    free = train("ditto", lr=0.01, pull=0.0).engine.personal()
    for name in own:
        assert torch.equal(own[name], plain[name])
        assert not torch.equal(own[name], free[name])


def test_the_personal_model_never_crosses_and_waits_for_its_client() -> None:
    clients = ragged_clients()
    method = make_method("ditto", clients)
    training = make_training(method, clients, Plan(4, participation=0.4))
    tap = Wiretap(training.engine)
    before = {n: t.clone() for n, t in training.engine.parts[0].state.items()}
    for round in range(4):
        training.advance(1)
        after = {n: t.clone() for n, t in training.engine.parts[0].state.items()}
        here = training.records[round]["participants"]
        for m in range(len(clients)):
            moved = not torch.equal(before["personal.conv1.weight"][m], after["personal.conv1.weight"][m])
            assert moved == (m in here)
        assert set(tap.ups[round]) == {f"model.{n}" for n in method.shapes()} | {"train_nodes"}
        assert torch.equal(tap.ups[round]["model.conv1.weight"], after["model.conv1.weight"][here])
        before = after


def test_a_negative_pull_is_refused() -> None:
    with pytest.raises(FedquiltError, match="The setting pull=-1 of method 'ditto' is not possible"):
        make_method("ditto", ragged_clients(), pull=-1)
