"""FedDyn: the paper's algorithm against a plain loop; its fixed point is where everyone's gradients add up to nothing."""

from __future__ import annotations

import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.nn.models import common_start
from fedquilt.scenarios.robust_aggregation import averaging_rule
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import PlainGcn, make_method, make_task, make_training, ragged_clients


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("alpha", [0.01, 0.3])
def test_rounds_equal_a_plain_loop(alpha: float, participation: float) -> None:
    clients, lr, epochs = ragged_clients(), 0.01, 6
    method = make_method("feddyn", clients, make_task(clients, epochs=epochs), dropout=0.0, lr=lr, alpha=alpha)
    start = common_start(method.shapes(), 3, len(clients), torch.device("cpu"))
    training = make_training(method, clients, Plan(4, participation))
    training.advance(3)
    nets = [PlainGcn(client, {name: w[m] for name, w in start.items()}) for m, client in enumerate(clients)]
    optimisers = [torch.optim.Adam(net.parameters(), lr=lr) for net in nets]
    x = {name: w[0] for name, w in start.items()}
    h = {name: torch.zeros_like(w) for name, w in x.items()}
    linear = [{name: torch.zeros_like(w) for name, w in x.items()} for _ in nets]
    for record in training.records:
        here = range(5) if participation == 1.0 else record["participants"]
        for m in here:
            net, optimiser = nets[m], optimisers[m]
            net.load(x)
            for _ in range(epochs):
                optimiser.zero_grad()
                loss = torch.nn.functional.cross_entropy(net()[net.train_nodes], net.y[net.train_nodes])
                for name, sent in x.items():
                    w = net.weight(name)
                    loss = loss - (linear[m][name] * w).sum() + alpha / 2 * (w - sent).square().sum()
                loss.backward()
                optimiser.step()
            for name, w in net.weights().items():
                linear[m][name] = linear[m][name] - alpha * (w - x[name])
        counts = [float(nets[m].train_nodes.sum()) for m in here]
        own = [nets[m].weights() for m in here]
        for name in x:
            mean = sum(n * w[name] for n, w in zip(counts, own, strict=True)) / sum(counts)
            h[name] = h[name] - alpha * len(here) / len(nets) * (mean - x[name])
            x[name] = mean - h[name] / alpha
    for name, stacked in training.engine.personal().items():
        assert_near(stacked, torch.stack([net.weights()[name] for net in nets]), 1e-4)
        assert_near(training.down[f"model.{name}"], x[name], 1e-4)
    norm = sum(float((w / alpha).square().sum()) for w in h.values()) ** 0.5
    assert float(method.diagnostics(training.server)["offset_norm"]) == pytest.approx(norm, rel=1e-3)
    assert norm > 0.1


def test_what_the_server_keeps_is_the_mean_of_what_the_clients_keep() -> None:
    clients = ragged_clients()
    method = make_method("feddyn", clients, alpha=0.5)
    training = make_training(method, clients, Plan(4))
    training.run()
    state, nodes = training.engine.parts[0].state, training.engine.parts[0].cohort.train_count
    for name in method.shapes():
        mean = torch.einsum("m,m...->...", nodes / nodes.sum(), state[f"dual.{name}"])
        assert_near(-0.5 * training.server[f"offset.{name}"], mean)


def test_the_duals_of_an_absent_client_stay() -> None:
    clients = ragged_clients()
    training = make_training(make_method("feddyn", clients), clients, Plan(4, participation=0.4))
    before = training.engine.parts[0].state["dual.conv1.weight"].clone()
    for _ in range(4):
        training.advance(1)
        after = training.engine.parts[0].state["dual.conv1.weight"].clone()
        assert [m for m in range(5) if not torch.equal(before[m], after[m])] == training.records[-1]["participants"]
        before = after


def test_at_least_five_steps_a_round_unless_told_otherwise() -> None:
    clients = ragged_clients()
    made = [make_method("feddyn", clients, make_task(clients, epochs=epochs)) for epochs in (1, 7)]
    assert [method.steps(2) for method in made] == [range(10, 15), range(14, 21)]
    assert make_method("feddyn", clients, least_steps=1).steps(2) == range(2, 3)
    clients[1].settings["epochs"] = 8
    training = make_training(make_method("feddyn", clients), clients, Plan(2))
    training.run()
    assert training.engine.parts[0].state["adam.step"].tolist() == [10, 16, 10, 10, 10]


def test_a_robust_rule_bounds_what_one_client_moves() -> None:
    clients = ragged_clients()
    for rule, most in (("mean", 1e9), ("median", 10.0), ("guarded", 10.0)):
        method = make_method("feddyn", clients, averaging=averaging_rule(rule))
        training = make_training(method, clients, Plan(2))
        uploads, _ = training.engine.round(0, torch.arange(5), {}, False)
        uploads["model.conv1.weight"][2] = 1e8
        down = method.aggregate(training.server, uploads, torch.arange(5), torch.arange(5))
        far = float(down["model.conv1.weight"].abs().max())
        assert far < most
        assert (far > 1e6) == (rule == "mean")


def test_alpha_must_be_positive() -> None:
    with pytest.raises(FedquiltError, match="The setting alpha=0 of method 'feddyn' is not possible"):
        make_method("feddyn", ragged_clients(), alpha=0)
