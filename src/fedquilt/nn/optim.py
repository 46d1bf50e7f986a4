"""Adam over stacked weights: one fused step for all clients.

Clients keep the optimiser's state: both moments and a step count of their own. A client that sat out some rounds corrects its
bias by its own steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedquilt.devices.device import has_kernels
from fedquilt.devices.fused_adam import adam_update
from fedquilt.nn.layers import Weights

FIRST, SECOND, STEP = "adam.first.", "adam.second.", "adam.step"
BETAS = (0.9, 0.999)
EPSILON = 1e-8
LearningRate = float | Tensor  # one for all, or one a client [M]


def adam_start(weights: Weights) -> Weights:
    """Zero moments for every weight, and a step count [M] (float32, as the fused kernel wants it)."""
    some = next(iter(weights.values()))
    state = {STEP: torch.zeros(some.shape[0], device=some.device)}
    for name, w in weights.items():
        state[FIRST + name] = torch.zeros_like(w)
        state[SECOND + name] = torch.zeros_like(w)
    return state


def adam_step(
    weights: Weights,
    grads: Weights,
    state: Weights,
    lr: float,
    weight_decay: float,
    rates: Mapping[str, LearningRate] | None = None,
) -> None:
    """One step of Adam (Kingma and Ba, 2015), in place, with L2 decay added to the gradient of the ``model.`` weights.

    Masks and other private switches do not decay: Adam normalises its step, so even a tiny decay would pull every entry
    without a gradient of its own to zero at full speed. `rates` names weights with a learning rate of their own, or with one
    for each client [M].
    """
    step = state[STEP]
    step += 1
    rates = rates or {}
    if not has_kernels(step):
        _update_by_rate(weights, grads, state, lr, weight_decay, rates)
        return
    from fedquilt.devices.kernels import Adam

    adam = Adam(step, BETAS, EPSILON)
    for name, w in weights.items():
        rate, decay = rates.get(name, lr), _decay(name, weight_decay)
        adam(w, grads[name], state[FIRST + name], state[SECOND + name], rate, decay)


def _decay(name: str, weight_decay: float) -> float:
    return weight_decay if name.startswith("model.") else 0.0


def _update_by_rate(
    weights: Weights, grads: Weights, state: Weights, lr: float, weight_decay: float, rates: Mapping[str, LearningRate]
) -> None:
    """The same where our kernels do not run, with one step count and one rate a tensor.

    Where all clients are at the same step and rate, stacked tensors are updated whole; otherwise client by client.
    """
    step = state[STEP]
    clients, together = len(step), bool((step == step[0]).all())
    # By rate and decay, what one call updates: (name, client), or (name, None) for all clients.
    groups: dict[tuple[float, float], list[tuple[str, int | None]]] = {}
    for name in weights:
        rate, decay = rates.get(name, lr), _decay(name, weight_decay)
        if isinstance(rate, float) and together:
            groups.setdefault((rate, decay), []).append((name, None))
            continue
        each = rate.tolist() if isinstance(rate, Tensor) else [rate] * clients
        for m, own in enumerate(each):
            groups.setdefault((own, decay), []).append((name, m))
    for (rate, decay), slices in groups.items():
        sources = (
            weights,
            grads,
            {name: state[FIRST + name] for name, _ in slices},
            {name: state[SECOND + name] for name, _ in slices},
        )
        w, g, first, second = ([each[n] if m is None else each[n][m] for n, m in slices] for each in sources)
        steps = [step[m or 0] for _, m in slices]
        adam_update(w, g, first, second, steps, rate, BETAS, decay, EPSILON)
