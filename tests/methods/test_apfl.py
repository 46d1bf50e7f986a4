"""APFL: the mixture and its weight, against a plain loop with autograd; its ends are FedAvg and Local."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.nn.models import common_start
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import PlainGcn, Wiretap, make_method, make_task, make_training, ragged_clients


def train(name: str, epochs: int = 2, **settings: Any) -> Training:
    clients = ragged_clients()
    method = make_method(name, clients, make_task(clients, epochs=epochs), **settings)
    training = make_training(method, clients, Plan(3))
    training.run()
    return training


def test_rounds_equal_a_plain_loop() -> None:
    clients, lr, alpha_lr = ragged_clients(), 0.01, 0.5
    method = make_method(
        "apfl", clients, make_task(clients, epochs=2), dropout=0.0, lr=lr, alpha=0.3, alpha_lr=alpha_lr
    )
    start = common_start(method.shapes(), 3, len(clients), torch.device("cpu"))
    nets, own, alphas, optimisers = [], [], [], []
    for m, client in enumerate(clients):
        nets.append(PlainGcn(client, {name: w[m] for name, w in start.items()}))
        own.append({name: w[m].clone().requires_grad_() for name, w in start.items()})
        alphas.append(torch.tensor(0.3, requires_grad=True))
        optimisers.append([torch.optim.Adam(w, lr=lr) for w in (nets[-1].parameters(), own[-1].values())])
    for _ in range(3):
        for net, mine, alpha, (shared_steps, own_steps) in zip(nets, own, alphas, optimisers, strict=True):
            for _ in range(2):
                shared = net.weights()
                mixed = {name: alpha * v + (1 - alpha) * shared[name] for name, v in mine.items()}
                own_steps.zero_grad()
                loss_of(net, mixed).backward()
                shared_steps.zero_grad()
                torch.nn.functional.cross_entropy(net()[net.train_nodes], net.y[net.train_nodes]).backward()
                own_steps.step()
                shared_steps.step()
                alpha.data = (alpha.data - alpha_lr * alpha.grad).clamp(0, 1)
                alpha.grad = None
        counts, last = [float(net.train_nodes.sum()) for net in nets], [net.weights() for net in nets]
        for net in nets:
            net.load({n: sum(c * w[n] for c, w in zip(counts, last, strict=True)) / sum(counts) for n in last[0]})
    training = make_training(method, clients, Plan(3))
    training.run()
    found = method.findings({}, training.engine.parts[0].state)["alpha"]
    assert_near(found, torch.stack(alphas).detach())
    assert float((found - 0.3).abs().min()) > 1e-3
    for name, stacked in training.engine.personal().items():
        expected = [a * v[name] + (1 - a) * w[name] for a, v, w in zip(alphas, own, last, strict=True)]
        assert_near(stacked, torch.stack(expected).detach())


def loss_of(net: PlainGcn, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """The training loss of a network with other weights, differentiable in them."""
    given = {
        "conv1.lin.weight": weights["conv1.weight"].T,
        "conv1.bias": weights["conv1.bias"],
        "conv2.lin.weight": weights["conv2.weight"].T,
        "conv2.bias": weights["conv2.bias"],
        "classifier.weight": weights["classifier.weight"].T,
        "classifier.bias": weights["classifier.bias"],
    }
    out = torch.func.functional_call(net, given, ())
    return torch.nn.functional.cross_entropy(out[net.train_nodes], net.y[net.train_nodes])


@pytest.mark.parametrize(("alpha", "like"), [(0.0, "fedavg"), (1.0, "local")])
def test_the_ends_of_a_fixed_mixture(alpha: float, like: str) -> None:
    mixed, plain = train("apfl", alpha=alpha, alpha_lr=0.0, lr=0.01), train(like, lr=0.01)
    for name, own in mixed.engine.personal().items():
        assert torch.equal(own, plain.engine.personal()[name])


def test_alpha_differs_between_clients_stays_in_its_range_and_never_crosses() -> None:
    clients = ragged_clients()
    method = make_method("apfl", clients, make_task(clients, epochs=2), alpha=0.5, alpha_lr=1.0)
    training = make_training(method, clients, Plan(6))
    tap = Wiretap(training.engine)
    training.run()
    alpha = method.findings({}, training.engine.parts[0].state)["alpha"]
    assert alpha.shape == (5,)
    assert float(alpha.min()) >= 0.0
    assert float(alpha.max()) <= 1.0
    assert len(set(alpha.tolist())) > 1
    assert all(set(up) == {f"model.{n}" for n in method.shapes()} | {"train_nodes"} for up in tap.ups)


def test_impossible_settings_are_refused() -> None:
    for name, value in (("alpha", 1.5), ("alpha_lr", -0.1)):
        with pytest.raises(FedquiltError, match=f"The setting {name}={value} of method 'apfl' is not possible"):
            make_method("apfl", ragged_clients(), **{name: value})
