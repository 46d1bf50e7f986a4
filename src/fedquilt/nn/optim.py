"""Adam over stacked weights: one fused step for all clients.

The state is part of what a client keeps: first and second moments and the client's own step count, so a client that
sat out some rounds still corrects its bias by its own steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedquilt.nn.layers import Weights

FIRST, SECOND, STEP = "adam.first.", "adam.second.", "adam.step"
BETAS = (0.9, 0.999)
EPSILON = 1e-8


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
    rates: Mapping[str, float] | None = None,
) -> None:
    """One step of Adam (Kingma and Ba, 2015), in place, with L2 decay added to the gradient of the ``model.`` weights.

    Masks and other private switches do not decay: Adam normalises its step, so even a tiny decay would pull every entry
    without a gradient of its own to zero at full speed. `rates` names weights with a learning rate of their own. Where all
    clients are at the same step the stacked tensors go in whole; otherwise each client's slice goes in with its own step.
    """
    step = state[STEP]
    step += 1
    together = bool((step == step[0]).all())
    groups: dict[tuple[float, float], list[str]] = {}
    for name in weights:
        rate = (rates or {}).get(name, lr)
        groups.setdefault((rate, weight_decay if name.startswith("model.") else 0.0), []).append(name)
    for (rate, decay), names in groups.items():
        sources = (
            weights,
            grads,
            {n: state[FIRST + n] for n in names},
            {n: state[SECOND + n] for n in names},
        )
        lists = [[source[n] for n in names] for source in sources]
        steps: list[Tensor] = [step[0]] * len(names)
        if not together:
            lists = [[tensor[m] for tensor in tensors for m in range(len(step))] for tensors in lists]
            steps = [step[m] for _ in names for m in range(len(step))]
        torch._fused_adam_(
            lists[0],
            lists[1],
            lists[2],
            lists[3],
            [],
            steps,
            lr=rate,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )
