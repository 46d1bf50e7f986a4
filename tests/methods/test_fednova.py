"""FedNova: FedAvg where all take as many steps, and the paper's formula where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedquilt.cohort.client import Client
from fedquilt.messages.message import dense
from fedquilt.privacy.dp import DpConfig, Privatiser
from fedquilt.scenarios.robust_aggregation import averaging_rule
from fedquilt.training.attendance import Conditions
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import Wiretap, make_method, make_task, make_training, ragged_clients

EPOCHS = [2, 6, 1, 2, 3]


def unequal() -> list[Client]:
    clients = ragged_clients()
    for client, epochs in zip(clients, EPOCHS, strict=True):
        client.settings["epochs"] = epochs
    return clients


def downs(name: str, clients: list[Client], rounds: int = 3, **settings: Any) -> list[dict]:
    method = make_method(name, clients, make_task(clients, epochs=2), **settings)
    training = make_training(method, clients, Plan(rounds + 1))
    tap = Wiretap(training.engine)
    training.run()
    return tap.downs[1:]


def test_with_equal_epochs_it_is_fedavg() -> None:
    for nova, avg in zip(downs("fednova", ragged_clients()), downs("fedavg", ragged_clients()), strict=True):
        assert set(nova) == set(avg)
        for name in nova:
            assert_near(nova[name], avg[name])


def test_with_unequal_epochs_it_is_the_papers_average_of_changes_per_step() -> None:
    clients = unequal()
    method = make_method("fednova", clients, make_task(clients, epochs=2))
    training = make_training(method, clients, Plan(4, participation=0.6))
    x = {name: dense(value).double().numpy() for name, value in method.public_start().items()}
    for _ in range(3):
        training.advance(1)
        here = training.records[-1]["participants"]
        # Personal models are the clients' own, after all of their steps.
        own = {f"model.{n}": w[here].double().numpy() for n, w in training.engine.personal().items()}
        nodes = np.array([int(((clients[m].split == 0) & (clients[m].graph.y >= 0)).sum()) for m in here])
        share, steps = nodes / nodes.sum(), np.array([EPOCHS[m] for m in here])
        for name, w in own.items():
            per_step = np.stack([(x[name] - one) / count for one, count in zip(w, steps, strict=True)])
            x[name] = x[name] - (share @ steps) * np.tensordot(share, per_step, axes=1)
            assert_near(training.down[name], torch.from_numpy(x[name]))
        assert float(method.diagnostics(training.server)["mean_effort"]) == pytest.approx(share @ steps / 2)
    plain = downs("fedavg", unequal(), 1)[0]
    assert max(float((plain[n] - v).abs().max()) for n, v in downs("fednova", unequal(), 1)[0].items()) > 1e-3


def test_who_takes_more_steps_does_not_count_more() -> None:
    """Two clients alike but for their epochs pull as far, each in its direction; in FedAvg the busier one pulls further."""
    method = make_method("fednova", ragged_clients(), make_task(ragged_clients(), epochs=2))
    server, _ = method.server_start()
    start = {name: dense(value) for name, value in method.public_start().items()}
    step = {name: torch.randn(value.shape) for name, value in start.items()}
    # One took 6 steps along `step`, the other 2 against it.
    uploads = {n: torch.stack([w + 2 * step[n], w - 2 * step[n]]) for n, w in start.items()}
    uploads |= {"train_nodes": torch.tensor([4.0, 4.0]), "effort": torch.tensor([3.0, 1.0])}
    here = torch.arange(2)
    for name, value in method.aggregate(server, uploads, here, here).items():
        assert_near(value, start[name])


def test_under_noise_everyone_counts_as_taking_the_runs_epochs() -> None:
    clients = unequal()
    method = make_method("fednova", clients, make_task(clients, epochs=2))
    uploads, _ = make_training(method, clients, Plan(1)).engine.round(0, torch.arange(5), {}, False)
    assert uploads["effort"].tolist() == [epochs / 2 for epochs in EPOCHS]
    protected = Privatiser(DpConfig(clip=1.0, noise=1e-3), 1, 0).applied(uploads, method.uploads, 0, range(5))
    assert protected["effort"].tolist() == [1.0] * 5


def test_a_hostile_effort_does_not_carry_a_robust_average_away() -> None:
    for rule in ("median", "guarded"):
        method = make_method("fednova", ragged_clients(), averaging=averaging_rule(rule))
        uploads, _ = make_training(method, ragged_clients(), Plan(1)).engine.round(0, torch.arange(5), {}, False)
        uploads["effort"][2] = 1e6
        server, _ = method.server_start()
        method.aggregate(server, uploads, torch.arange(5), torch.arange(5))
        assert float(method.diagnostics(server)["mean_effort"]) == pytest.approx(1.0)


def test_a_stragglers_change_is_per_step_that_it_did() -> None:
    clients = ragged_clients()
    method = make_method("fednova", clients, make_task(clients, epochs=4))
    training = make_training(method, clients, Plan(2, conditions=Conditions(stragglers=0.6)))
    start = {name: dense(value).double().numpy() for name, value in method.public_start().items()}
    training.advance(1)
    here = training.runner.attendance.at(0)
    members = here.participants.tolist()
    steps = np.array([int(here.efforts.get(m, 1.0) * 4) for m in members])
    assert steps.min() < 4
    nodes = np.array([int(((clients[m].split == 0) & (clients[m].graph.y >= 0)).sum()) for m in members])
    share = nodes / nodes.sum()
    for name, w in training.engine.personal().items():
        x, own = start[f"model.{name}"], w[members].double().numpy()
        per_step = np.stack([(one - x) / count for one, count in zip(own, steps, strict=True)])
        right = x + (share @ steps) * np.tensordot(share, per_step, axes=1)
        assert_near(training.down[f"model.{name}"], torch.from_numpy(right))
