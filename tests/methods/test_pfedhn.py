"""pFedHN: a network at the server generates clients' models from vectors that it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.methods.pfedhn import LAST, NET, VECTORS, PFedHN
from fedquilt.nn.optim import FIRST
from support.clients import assert_near
from support.federations import assert_same, make_method, make_task, ragged_clients, tapped_run


def make(**settings: Any) -> PFedHN:
    return make_method("pfedhn", ragged_clients(), **{"width": 12, "vector": 3} | settings)


def plain_read(method: PFedHN, server: dict[str, torch.Tensor]) -> torch.Tensor:
    """The network before its last layer, as anyone would write it."""
    p = {name.removeprefix(NET): value for name, value in server.items()}
    x = torch.nn.functional.elu(server[VECTORS] @ p["in.weight"] + p["in.bias"])
    for layer in ("mlp0", "mlp1"):
        x = torch.relu(x @ p[layer + ".weight"] + p[layer + ".bias"])
    x = x / x.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return x - x.mean(0) if method.settings.reading == "differences" else x


def some_changes(method: PFedHN, clients: int = 5, seed: int = 0) -> dict[str, torch.Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return {"update." + n: torch.randn(clients, *shape, generator=stream) for n, shape in method.generated.items()}


def test_everybody_starts_from_the_common_start() -> None:
    method = make()
    server, down = method.server_start()
    assert down == {}
    params = method.parameters(server)
    written = method.net.generate(params, method.read(params, server[VECTORS]))
    start = method.public_start()
    for name, w in written.items():
        assert torch.equal(w, start["model." + name].expand_as(w))
    assert len(server[VECTORS].unique(dim=0)) == 5


@pytest.mark.parametrize("reading", ["differences", "outputs"])
def test_a_step_is_the_vector_jacobian_product_of_what_training_changed(reading: str) -> None:
    """Autograd through the whole network, of |generated - trained|^2 / 2 at the senders."""
    method = make(reading=reading)
    server, _ = method.server_start()
    everyone, senders = torch.arange(5), torch.tensor([0, 2, 3])
    method.aggregate(server, some_changes(method), everyone, everyone)  # now the last layer's matrix is not zero
    leaves = {n: v.clone().requires_grad_() for n, v in server.items() if n.startswith(NET) or n == VECTORS}
    read = plain_read(method, leaves)[senders]
    changes = some_changes(method, 3, seed=1)
    loss = torch.zeros(())
    for name, shape in method.generated.items():
        generated = (read @ leaves[f"{NET}{LAST}{name}.weight"] + leaves[f"{NET}{LAST}{name}.bias"]).view(-1, *shape)
        loss = loss + (generated - (generated.detach() + changes["update." + name])).square().sum() / 2
    loss.backward()
    before = {name: tensor.clone() for name, tensor in server.items()}
    method.aggregate(server, changes, senders, everyone)
    for name, leaf in leaves.items():
        moved = server[name] - before[name]
        if name.startswith(NET + LAST):  # plain steps, of one size for the matrices and one for the biases
            assert_near(moved, -moved.norm() / leaf.grad.norm() * leaf.grad)
            assert moved.norm() > 0
        else:  # Adam's first moment is the gradient's moving mean
            first = server[FIRST + name] - 0.9 * before[FIRST + name]
            assert_near(first, 0.1 * leaf.grad)


def test_steps_are_bounded_by_what_the_last_layer_reads() -> None:
    method = make(personal_step=0.5)
    read = plain_read(method, method.server_start()[0])
    matrix, bias = method.steps_of_last_layer(read)
    assert float(matrix) == pytest.approx(0.5 / np.linalg.eigvalsh((read.T @ read).double().numpy())[-1], rel=1e-4)
    assert bias == pytest.approx(1 / 5)


def test_generated_models_move_toward_trained_ones() -> None:
    method = make(personal_step=1.0)
    server, _ = method.server_start()
    everyone, name = torch.arange(5), "conv2.weight"
    target = method.public_start()["model." + name] + some_changes(method)["update." + name]
    changes = {n: torch.zeros_like(v) for n, v in some_changes(method).items()}
    given = method.public_start()["model." + name].expand_as(target)
    distance = [float((given - target).norm())]
    for _ in range(30):
        changes["update." + name] = target - given
        given = method.aggregate(server, dict(changes), everyone, everyone)["model." + name]
        distance.append(float((given - target).norm()))
    assert distance[-1] < 0.5 * distance[0]
    assert distance[-1] < distance[10]
    apart = method.diagnostics(server)
    assert float(apart["personal_share"]) > 0.1
    assert float(apart["generated_distance"]) > 1.0


def test_nothing_personal_is_fedavg_with_an_unweighted_mean() -> None:
    clients = ragged_clients()
    method = make_method("pfedhn", clients, personal_step=0.0, width=12)
    _, tap = tapped_run(method, clients, 3, 1.0)
    for name in method.generated:
        given = tap.downs[1]["model." + name]
        assert_near(given[1:], given[:1].expand_as(given[1:]))
        change = tap.ups[1]["update." + name]
        expected = (given + change).mean(0)
        assert_near(tap.downs[2]["model." + name][0], expected)


def test_who_is_who_matters() -> None:
    """The permutation test: clients that are given each other's models learn something else."""
    method = make(personal_step=1.0)
    server, _ = method.server_start()
    everyone = torch.arange(5)
    down: dict[str, Any] = {}
    for _ in range(3):
        down = method.aggregate(server, some_changes(method), everyone, everyone)
    weights = down["model.conv1.weight"]
    assert float((weights - weights.roll(1, 0)).abs().max()) > 0.01


def test_a_classifier_of_ones_own_never_crosses() -> None:
    clients = ragged_clients()
    _, tap = tapped_run(make_method("pfedhn", clients, generates="layers", width=12), clients, 3, 0.6)
    layers = {f"conv{i}.{kind}" for i in (1, 2) for kind in ("weight", "bias")}
    assert all(set(up) == {"update." + name for name in layers} for up in tap.ups)
    assert all(set(down) == {"model." + name for name in layers} for down in tap.downs[1:])


@pytest.mark.parametrize("personal", ["trained", "generated"])
def test_the_personal_model_is_what_was_trained_or_what_was_given(personal: str) -> None:
    clients = ragged_clients()
    context = make_task(clients, epochs=2)
    training, tap = tapped_run(make_method("pfedhn", clients, context, personal=personal, width=12), clients, 3, 1.0)
    given, change = (each[-1] for each in (tap.downs, tap.ups))
    added = {name: change["update." + name] * (personal == "trained") for name in training.method.generated}
    found = training.engine.personal()
    for name, more in added.items():
        assert_near(found[name], given["model." + name] + more)
    if personal == "generated":
        assert_same({n: found[n] for n in added}, {n: given["model." + n] for n in added})


def test_moments_start_afresh_where_asked() -> None:
    clients = ragged_clients()
    for fresh, steps in ((True, 1.0), (False, 3.0)):
        training, _ = tapped_run(make_method("pfedhn", clients, fresh_moments=fresh, width=12), clients, 3, 1.0)
        assert training.engine.state()["adam.step"].tolist() == [steps] * 5


def test_settings_outside_their_range_are_refused() -> None:
    for setting in ({"vector": 0}, {"width": 0}, {"server_lr": 0.0}, {"personal_step": -1.0}, {"generates": "all"}):
        with pytest.raises(FedquiltError, match=next(iter(setting))):
            make(**setting)
