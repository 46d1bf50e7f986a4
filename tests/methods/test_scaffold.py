"""SCAFFOLD: the paper's algorithm with option II against a plain loop, with SGD and with Adam."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from fedquilt.cohort.client import Client
from fedquilt.errors import FedquiltError
from fedquilt.nn.models import common_start
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import PlainGcn, make_method, make_task, make_training, ragged_clients

LR = {"sgd": 0.1, "adam": 0.01}


def plain_loop(
    clients: list[Client], start: dict, chosen: Sequence[Sequence[int]], epochs: list[int], optimiser: str
) -> tuple[list[dict], dict, dict]:
    """SCAFFOLD as it is written, a client at a time; c_m' is the paper's formula with SGD, the mean gradient with Adam."""
    nets = [PlainGcn(client, {name: w[m] for name, w in start.items()}) for m, client in enumerate(clients)]
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    steps = [kinds[optimiser](net.parameters(), lr=LR[optimiser]) for net in nets]
    x = {name: w[0] for name, w in start.items()}
    c = {name: torch.zeros_like(w) for name, w in x.items()}
    own = [{name: torch.zeros_like(w) for name, w in x.items()} for _ in nets]
    for here in chosen:
        changes = []
        for m in here:
            net, seen = nets[m], {name: torch.zeros_like(w) for name, w in x.items()}
            net.load(x)
            for _ in range(epochs[m]):
                steps[m].zero_grad()
                torch.nn.functional.cross_entropy(net()[net.train_nodes], net.y[net.train_nodes]).backward()
                for name, w in seen.items():
                    weight = net.weight(name)
                    grad = weight.grad if weight.is_leaf else transposed_gradient(net, name)
                    w += grad / epochs[m]
                    grad += c[name] - own[m][name]
                steps[m].step()
            after = net.weights()
            new = seen
            if optimiser == "sgd":
                new = {n: own[m][n] - c[n] + (x[n] - after[n]) / (epochs[m] * LR["sgd"]) for n in x}
            changes.append({n: new[n] - own[m][n] for n in x})
            own[m] = new
        counts = [float(nets[m].train_nodes.sum()) for m in here]
        share = [count / sum(counts) for count in counts]
        x = {n: sum(p * nets[m].weights()[n] for p, m in zip(share, here, strict=True)) for n in x}
        c = {
            n: c[n] + len(here) / len(nets) * sum(p * one[n] for p, one in zip(share, changes, strict=True)) for n in c
        }
    return [net.weights() for net in nets], x, c


def transposed_gradient(net: PlainGcn, name: str) -> torch.Tensor:
    """The gradient of a matrix by our name, [in, out]: a view, so that it can be changed in place."""
    layer = getattr(net, name.split(".")[0])
    return (layer.weight if name.startswith("classifier") else layer.lin.weight).grad.T


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_rounds_equal_a_plain_loop(optimiser: str, unequal: bool, participation: float) -> None:
    clients = ragged_clients()
    epochs = [2, 4, 1, 2, 3] if unequal else [2] * 5
    for client, own in zip(clients, epochs, strict=True) if unequal else ():
        client.settings["epochs"] = own
    settings = {"dropout": 0.0, "lr": LR[optimiser], "optimiser": optimiser}
    method = make_method("scaffold", clients, make_task(clients, epochs=2), **settings)
    start = common_start(method.shapes(), 3, len(clients), torch.device("cpu"))
    training = make_training(method, clients, Plan(5, participation))
    training.advance(4)
    chosen = [range(5) if participation == 1.0 else record["participants"] for record in training.records]
    own, x, c = plain_loop(clients, start, chosen, epochs, optimiser)
    for name in x:
        assert_near(training.down[f"model.{name}"], x[name])
        assert_near(training.down[f"control.{name}"], c[name])
        assert_near(training.engine.personal()[name], torch.stack([weights[name] for weights in own]))
    norm = sum(float(w.square().sum()) for w in c.values()) ** 0.5
    assert float(method.diagnostics(training.server)["control_norm"]) == pytest.approx(norm, rel=1e-4)
    assert norm > 1e-3


def test_with_everyone_present_the_control_variate_is_the_mean_of_the_clients_own() -> None:
    clients = ragged_clients()
    method = make_method("scaffold", clients, make_task(clients, epochs=3))
    training = make_training(method, clients, Plan(4))
    training.run()
    state, share = training.engine.parts[0].state, training.engine.parts[0].cohort.train_count
    for name in method.shapes():
        mean = torch.einsum("m,m...->...", share / share.sum(), state[f"control.{name}"])
        assert_near(training.server[f"control.{name}"], mean)
    gap = method.findings(training.server, state)["control_distance"]
    assert gap.shape == (5,)
    assert float(gap.min()) > 0.05


def test_one_step_of_sgd_a_round_is_fedavgs_average_and_two_are_not() -> None:
    clients = ragged_clients()
    for epochs in (1, 2):
        settings = {"dropout": 0.0, "lr": 0.1, "optimiser": "sgd"}
        method = make_method("scaffold", clients, make_task(clients, epochs=epochs), **settings)
        start = common_start(method.shapes(), 3, len(clients), torch.device("cpu"))
        training = make_training(method, clients, Plan(4))
        training.advance(3)
        nets = [PlainGcn(client, {name: w[m] for name, w in start.items()}) for m, client in enumerate(clients)]
        for _ in range(3):
            for net in nets:
                for _ in range(epochs):
                    net.zero_grad()
                    torch.nn.functional.cross_entropy(net()[net.train_nodes], net.y[net.train_nodes]).backward()
                    torch.optim.SGD(net.parameters(), lr=0.1).step()
            counts, own = [float(net.train_nodes.sum()) for net in nets], [net.weights() for net in nets]
            mean = {n: sum(k * w[n] for k, w in zip(counts, own, strict=True)) / sum(counts) for n in own[0]}
            for net in nets:
                net.load(mean)
        far = max(float((training.down[f"model.{name}"] - value).abs().max()) for name, value in mean.items())
        assert far < 1e-6 if epochs == 1 else far > 1e-5


def test_the_control_variate_of_an_absent_client_stays() -> None:
    clients = ragged_clients()
    method = make_method("scaffold", clients)
    training = make_training(method, clients, Plan(4, participation=0.4))
    before = training.engine.parts[0].state["control.conv1.weight"].clone()
    for _ in range(4):
        training.advance(1)
        after = training.engine.parts[0].state["control.conv1.weight"].clone()
        moved = [m for m in range(5) if not torch.equal(before[m], after[m])]
        assert moved == training.records[-1]["participants"]
        before = after


def test_an_unknown_optimiser_is_refused() -> None:
    with pytest.raises(FedquiltError, match=r"The setting optimiser='?lion'? of method 'scaffold' is not possible"):
        make_method("scaffold", ragged_clients(), optimiser="lion")
