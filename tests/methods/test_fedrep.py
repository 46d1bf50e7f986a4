"""FedRep: first the classifier, then the layers; only the layers cross."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.methods.base_adam import KEYS
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.models import common_start
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import PlainGcn, Wiretap, make_method, make_task, make_training, ragged_clients


def plain_loop(start: dict, rounds: int, head_epochs: int, epochs: list[int], lr: float) -> list[dict]:
    """Two of torch's Adams a client, one of its classifier and one of its layers."""
    clients = ragged_clients()
    nets = [PlainGcn(client, {name: w[m] for name, w in start.items()}) for m, client in enumerate(clients)]
    heads = [torch.optim.Adam(net.classifier.parameters(), lr=lr) for net in nets]
    bodies = [torch.optim.Adam([*net.conv1.parameters(), *net.conv2.parameters()], lr=lr) for net in nets]
    for _ in range(rounds):
        for net, head, body, own in zip(nets, heads, bodies, epochs, strict=True):
            for optimiser in [head] * head_epochs + [body] * own:
                net.zero_grad()
                torch.nn.functional.cross_entropy(net()[net.train_nodes], net.y[net.train_nodes]).backward()
                optimiser.step()
        counts = [float(net.train_nodes.sum()) for net in nets]
        own = [net.weights() for net in nets]
        for net in nets:
            net.load(
                {
                    name: sum(c * w[name] for c, w in zip(counts, own, strict=True)) / sum(counts)
                    for name in own[0]
                    if name.startswith("conv")
                }
            )
    return own


@pytest.mark.parametrize("unequal", [False, True])
def test_rounds_equal_a_plain_loop(unequal: bool) -> None:
    clients = ragged_clients()
    epochs = [2, 2, 1, 3, 2] if unequal else [2] * 5
    for client, own in zip(clients, epochs, strict=True) if unequal else ():
        client.settings["epochs"] = own
    method = make_method("fedrep", clients, make_task(clients, epochs=2), dropout=0.0, lr=0.01, head_epochs=3)
    start = common_start(method.shapes(), 3, len(clients), torch.device("cpu"))
    training = make_training(method, clients, Plan(3))
    training.run()
    expected = plain_loop(start, 3, 3, epochs, 0.01)
    for name, stacked in training.engine.personal().items():
        assert_near(stacked, torch.stack([weights[name] for weights in expected]))


def test_each_step_moves_one_part_only() -> None:
    clients = ragged_clients()
    method = make_method("fedrep", clients, head_epochs=2)
    cohort = Cohort(clients)
    state = method.start(cohort)
    method.local_update(state, cohort, {}, 0)  # so that both parts have moments
    full, _ = make_method("fedper", clients).gradients(state, cohort, Dropout(0.5, state[KEYS], 0), {})
    for step, part in ((0, "model.classifier"), (1, "model.classifier"), (2, "model.conv")):
        before = {name: tensor.clone() for name, tensor in state.items()}
        grads, _ = method.gradients(state, cohort, Dropout(0.5, state[KEYS], step), {})
        assert set(grads) == {name for name in full if name.startswith(part)}
        if step == 0:
            assert all(torch.equal(grad, full[name]) for name, grad in grads.items())
        method.step(state, cohort, {}, Dropout(0.5, state[KEYS], step))
        moved = {n for n in before if n.startswith("model.") and not torch.equal(before[n], state[n])}
        assert moved == set(grads)


def test_the_classifier_never_crosses_and_sees_more_steps() -> None:
    clients = ragged_clients()
    method = make_method("fedrep", clients, make_task(clients, epochs=2), head_epochs=3)
    training = make_training(method, clients, Plan(4, participation=0.6))
    tap = Wiretap(training.engine)
    training.run()
    layers = {f"model.conv{i}.{kind}" for i in (1, 2) for kind in ("weight", "bias")}
    assert all(set(up) == layers | {"train_nodes"} for up in tap.ups)
    rounds = torch.tensor([sum(m in record["participants"] for record in training.records) for m in range(5)])
    state = training.engine.parts[0].state
    assert state["head.step"].tolist() == (3 * rounds).tolist()
    assert state["adam.step"].tolist() == (2 * rounds).tolist()
    assert method.steps(2) == range(10, 15)


def test_impossible_settings_are_refused() -> None:
    clients = ragged_clients()
    with pytest.raises(FedquiltError, match="The setting head_epochs=0 of method 'fedrep' is not possible"):
        make_method("fedrep", clients, head_epochs=0)
    task = replace(make_task(clients), epochs=2)
    assert make_method("fedrep", clients, task).settings.epochs == 2
