"""FedProx: the pull toward the received model, and that one full-batch epoch knows none."""

from __future__ import annotations

import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.methods.base_adam import KEYS
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.models import common_start
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import make_method, make_task, make_training, pyg_loop, ragged_clients


def train(name: str, epochs: int, **settings: float) -> Training:
    clients = ragged_clients()
    method = make_method(name, clients, make_task(clients, epochs=epochs), **settings)
    training = make_training(method, clients, Plan(4))
    training.run()
    return training


def test_the_gradient_has_mu_times_the_way_from_the_received_model() -> None:
    clients = ragged_clients()
    prox, plain = make_method("fedprox", clients, mu=0.3), make_method("fedavg", clients)
    cohort = Cohort(clients)
    state = prox.start(cohort)
    received = {f"model.{n}": torch.randn(shape) for n, shape in prox.model.shapes().items()}
    dropout = Dropout(0.5, state[KEYS], 2)
    with_pull, loss = prox.gradients(state, cohort, dropout, received)
    without, same_loss = plain.gradients(state, cohort, dropout, received)
    assert torch.equal(loss, same_loss)
    assert list(with_pull) == list(without)
    for name, grad in with_pull.items():
        assert_near(grad, without[name] + 0.3 * (state[name] - received[name]))


def test_one_epoch_is_fedavg_and_two_are_not() -> None:
    for epochs in (1, 2):
        one, two = (
            train(name, epochs, **more).engine.personal() for name, more in (("fedprox", {"mu": 5.0}), ("fedavg", {}))
        )
        far = max(float((one[name] - two[name]).abs().max()) for name in one)
        assert far < 1e-7 if epochs == 1 else far > 1e-3


def test_mu_zero_is_fedavg() -> None:
    one, two = train("fedprox", 3, mu=0.0).engine.personal(), train("fedavg", 3).engine.personal()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("mu", [0.01, 1.0])
def test_rounds_equal_a_plain_loop(mu: float) -> None:
    clients = ragged_clients()
    method = make_method("fedprox", clients, make_task(clients, epochs=3), dropout=0.0, lr=0.01, mu=mu)
    start = common_start(method.shapes(), 3, len(clients), torch.device("cpu"))
    own, _ = pyg_loop(clients, start, 3, 3, 0.01, mu=mu)
    training = make_training(method, clients, Plan(3))
    training.run()
    for name, stacked in training.engine.personal().items():
        assert_near(stacked, torch.stack([weights[name] for weights in own]))
