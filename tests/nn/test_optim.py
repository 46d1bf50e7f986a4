"""Adam over stacked weights equals torch.optim.Adam client by client."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedquilt.nn.optim import FIRST, SECOND, STEP, adam_start, adam_step, clip_gradients, sgd_step
from support.clients import assert_near, numbers

SHAPES = {"model.conv1.weight": (3, 4), "model.conv1.bias": (4,), "mask.conv1.weight": (3, 4)}
LR = 0.01
Weights = dict[str, Tensor]


def draw(clients: int, seed: int) -> Weights:
    stream = torch.Generator().manual_seed(seed)
    return {name: torch.randn(clients, *shape, generator=stream) for name, shape in SHAPES.items()}


class Alone:
    """One client's weights and PyTorch's own Adam in double precision, decay on ``model.`` weights alone.

    Each weight is a group of parameters; those named in `rates` have a learning rate of their own.
    """

    def __init__(self, weights: Weights, m: int, weight_decay: float, rates: Mapping[str, float] | None = None) -> None:
        self.weights = {name: w[m].double().clone() for name, w in weights.items()}
        groups = [
            {
                "params": [w],
                "weight_decay": weight_decay if name.startswith("model.") else 0.0,
                "lr": (rates or {}).get(name, LR),
            }
            for name, w in self.weights.items()
        ]
        self.adam = torch.optim.Adam(groups, lr=LR)

    def step(self, grads: Weights, m: int) -> None:
        for name, w in self.weights.items():
            w.grad = grads[name][m].double()
        self.adam.step()


@pytest.mark.parametrize("weight_decay", [0.0, 1e-6, 0.1])
@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), clients=st.integers(1, 4), steps=st.integers(1, 12))
def test_all_clients_together(weight_decay: float, seed: int, clients: int, steps: int) -> None:
    weights = draw(clients, seed)
    state, alone = adam_start(weights), [Alone(weights, m, weight_decay) for m in range(clients)]
    for step in range(steps):
        grads = draw(clients, seed + step + 1)
        kept = {name: grad.clone() for name, grad in grads.items()}
        adam_step(weights, grads, state, LR, weight_decay)
        assert all(torch.equal(grads[name], kept[name]) for name in grads)
        for m in range(clients):
            alone[m].step(grads, m)
    assert state[STEP].tolist() == [steps] * clients
    for name, w in weights.items():
        assert_near(w, torch.stack([one.weights[name] for one in alone]), 2e-5)


@settings(max_examples=15)
@given(data=st.data(), seed=st.integers(0, 2**31), clients=st.integers(2, 5))
def test_clients_at_different_steps(data: st.DataObject, seed: int, clients: int) -> None:
    """Clients sit out some rounds: the engine takes the chosen ones out, steps them and puts them back."""
    weights, decay = draw(clients, seed), 0.05
    state, alone = adam_start(weights), [Alone(weights, m, decay) for m in range(clients)]
    counts = torch.zeros(clients)
    for step in range(6):
        chosen = sorted(data.draw(st.sets(st.integers(0, clients - 1), min_size=1)))
        grads = draw(clients, seed + step + 1)
        mine = {name: w[chosen] for name, w in weights.items()}
        own = {name: tensor[chosen] for name, tensor in state.items()}
        adam_step(mine, {name: grad[chosen] for name, grad in grads.items()}, own, LR, decay)
        for name in weights:
            weights[name][chosen] = mine[name]
        for name in state:
            state[name][chosen] = own[name]
        counts[chosen] += 1
        for m in chosen:
            alone[m].step(grads, m)
    assert torch.equal(state[STEP], counts)
    for name, w in weights.items():
        assert_near(w, torch.stack([one.weights[name] for one in alone]), 2e-5)


def test_ragged_steps_in_one_call() -> None:
    """The same, surely in the branch where one call holds clients at steps 1, 4 and 8."""
    weights, decay = draw(3, 0), 0.05
    state, alone = adam_start(weights), [Alone(weights, m, decay) for m in range(3)]
    for step in range(7):
        grads = draw(3, step + 1)
        for m in [m for m, last in enumerate((0, 3, 7)) if step < last]:
            pick = slice(m, m + 1)
            views = [{name: t[pick] for name, t in group.items()} for group in (weights, grads, state)]
            adam_step(*views, LR, decay)
            alone[m].step(grads, m)
    assert state[STEP].tolist() == [0, 3, 7]
    grads = draw(3, 99)
    adam_step(weights, grads, state, LR, decay)
    for m in range(3):
        alone[m].step(grads, m)
    assert state[STEP].tolist() == [1, 4, 8]
    for name, w in weights.items():
        assert_near(w, torch.stack([one.weights[name] for one in alone]), 2e-5)


@settings(max_examples=15)
@given(
    data=st.data(),
    seed=st.integers(0, 2**31),
    clients=st.integers(1, 4),
    rates=st.dictionaries(st.sampled_from([*SHAPES, "no such weight"]), st.sampled_from([0.0, 1e-4, 0.05, LR])),
)
def test_weights_with_rates_of_their_own(data: st.DataObject, seed: int, clients: int, rates: dict[str, float]) -> None:
    """As parameter groups of torch.optim.Adam with different learning rates, clients at the same step or not."""
    weights, decay = draw(clients, seed), data.draw(st.sampled_from([0.0, 0.05]))
    state, alone = adam_start(weights), [Alone(weights, m, decay, rates) for m in range(clients)]
    before = {name: w.clone() for name, w in weights.items()}
    for step in range(6):
        chosen = sorted(data.draw(st.sets(st.integers(0, clients - 1), min_size=1)))
        grads = draw(clients, seed + step + 1)
        groups = [{name: t[chosen] for name, t in group.items()} for group in (weights, grads, state)]
        adam_step(*groups, LR, decay, rates)
        for kept, moved in zip((weights, grads, state), groups, strict=True):
            for name in kept:
                kept[name][chosen] = moved[name]
        for m in chosen:
            alone[m].step(grads, m)
    for name, w in weights.items():
        assert_near(w, torch.stack([one.weights[name] for one in alone]), 2e-5)
        if rates.get(name) == 0.0:
            assert torch.equal(w, before[name])


each_rate = st.sampled_from([0.0, 1e-4, 0.05, LR])


@settings(max_examples=20)
@given(data=st.data(), seed=st.integers(0, 2**31), clients=st.integers(1, 4))
def test_weights_with_a_rate_for_each_client(data: st.DataObject, seed: int, clients: int) -> None:
    """As one torch.optim.Adam a client with rates of its own, clients at the same step or not."""
    weights, decay = draw(clients, seed), data.draw(st.sampled_from([0.0, 0.05]))
    own = st.one_of(each_rate, st.lists(each_rate, min_size=clients, max_size=clients))
    rates: dict[str, float | list[float]] = data.draw(st.dictionaries(st.sampled_from([*SHAPES]), own, min_size=1))

    def rates_of(m: int) -> dict[str, float]:
        return {name: rate if isinstance(rate, float) else rate[m] for name, rate in rates.items()}

    state, alone = adam_start(weights), [Alone(weights, m, decay, rates_of(m)) for m in range(clients)]
    before = {name: w.clone() for name, w in weights.items()}
    together = data.draw(st.booleans())
    for step in range(6):
        everyone = set(range(clients))
        chosen = sorted(everyone if together else data.draw(st.sets(st.integers(0, clients - 1), min_size=1)))
        grads = draw(clients, seed + step + 1)
        groups = [{name: t[chosen] for name, t in group.items()} for group in (weights, grads, state)]
        mine = {n: rate if isinstance(rate, float) else torch.tensor(rate)[chosen] for n, rate in rates.items()}
        adam_step(*groups, LR, decay, mine)
        for kept, moved in zip((weights, grads, state), groups, strict=True):
            for name in kept:
                kept[name][chosen] = moved[name]
        for m in chosen:
            alone[m].step(grads, m)
    for name, w in weights.items():
        assert_near(w, torch.stack([one.weights[name] for one in alone]), 2e-5)
        for m in range(clients):
            if rates_of(m).get(name) == 0.0:
                assert torch.equal(w[m], before[name][m])


def test_equal_rates_for_each_client_are_one_rate() -> None:
    """Up to rounding: the stacked tensors go in whole or client by client."""
    name, found = "mask.conv1.weight", []
    for rate in (0.05, torch.full((3,), 0.05)):
        weights = draw(3, 0)
        state = adam_start(weights)
        for step in range(3):
            adam_step(weights, draw(3, step + 1), state, LR, 0.01, {name: rate})
        found.append(weights | state)
    for other in found[1:]:
        for n, tensor in found[0].items():
            assert_near(other[n], tensor, 1e-6)


def test_rates_of_clients_move_their_own_slices_alone() -> None:
    """The first step of Adam is as long as the rate, whatever the gradient."""
    own, rates = "model.conv1.bias", [0.5, 0.0, 0.125]
    weights, before = draw(3, 0), draw(3, 0)
    adam_step(weights, draw(3, 1), adam_start(weights), LR, 0.0, {own: torch.tensor(rates)})
    for name, w in weights.items():
        for m in range(3):
            moved = (w[m] - before[name][m]).abs()
            assert_near(moved, torch.full_like(moved, rates[m] if name == own else LR), 1e-4)


def test_a_rate_moves_its_own_weight_alone() -> None:
    """The first step of Adam is as long as the rate, whatever the gradient."""
    own, rates = "model.conv1.bias", {"model.conv1.bias": 0.5}
    found = []
    for given_rates in (None, {}, rates):
        weights = draw(2, 0)
        adam_step(weights, draw(2, 1), adam_start(weights), LR, 0.0, given_rates)
        found.append(weights)
    before = draw(2, 0)
    for name, w in before.items():
        assert torch.equal(found[0][name], found[1][name])
        assert torch.equal(found[2][name], found[0][name]) == (name != own)
        moved = (found[2][name] - w).abs()
        assert_near(moved, torch.full_like(w, 0.5 if name == own else LR), 1e-4)


def test_decay_is_for_the_model_alone() -> None:
    """Without a gradient, decay moves a weight at full speed; a mask must stay where it is."""
    weights = draw(2, 0)
    before = {name: w.clone() for name, w in weights.items()}
    none = {name: torch.zeros_like(w) for name, w in weights.items()}
    adam_step(weights, none, adam_start(weights), LR, weight_decay=1e-3)
    for name, w in weights.items():
        if name.startswith("model."):
            assert_near(w, before[name] - LR * before[name].sign(), 1e-4)
        else:
            assert torch.equal(w, before[name])


def test_state_names_and_shapes() -> None:
    weights = draw(3, 0)
    state = adam_start(weights)
    assert set(state) == {STEP} | {part + name for part in (FIRST, SECOND) for name in weights}
    assert all(len(tensor) == 3 and not tensor.any() for tensor in state.values())


def test_gradients_are_cut_to_a_norm_client_by_client() -> None:
    grads = draw(3, 0)
    for grad in grads.values():
        grad[1] *= 1e-3
        grad[2] *= 1e30
    before = {name: grad.clone() for name, grad in grads.items()}
    clip_gradients(grads, 1.0)
    for m in range(3):
        alone = [before[name][m].double() for name in grads]
        whole = torch.cat([grad.ravel() for grad in alone]).norm()
        for name, grad in zip(grads, alone, strict=True):
            assert_near(grads[name][m].double(), grad / max(1.0, float(whole)), 1e-5)
    grads = draw(2, 0)
    grads["mask.conv1.weight"][1, 0, 0] = float("nan")
    clip_gradients(grads, 1.0)
    assert all(grad[0].isfinite().all() for grad in grads.values())
    assert not grads["mask.conv1.weight"][1].isfinite().all()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_gradient_descent_equals_torchs_for_each_client(decay: float) -> None:
    """With one learning rate and with one for each client; only models decay."""
    rates = [0.1, 0.3, 0.05]
    start = {"model.w": numbers(1, 3, 4, 2), "personal.b": numbers(2, 3, 5), "mask": numbers(3, 3, 2)}
    grads = {name: numbers(seed, *w.shape) for seed, (name, w) in enumerate(start.items(), start=4)}
    for each in ([0.1] * 3, rates):
        own = torch.tensor(each, dtype=torch.float64)
        weights = {name: w.clone() for name, w in start.items()}
        sgd_step(weights, grads, 0.1, decay, {} if each != rates else dict.fromkeys(weights, own))
        for name, w in start.items():
            for m, lr in enumerate(each):
                one = w[m].clone().requires_grad_()
                one.grad = grads[name][m].clone()
                torch.optim.SGD([one], lr=lr, weight_decay=0.0 if name == "mask" else decay).step()
                assert_near(weights[name][m], one.detach(), 1e-6)
