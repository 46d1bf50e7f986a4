"""Adam over stacked weights: one fused step for all clients.

The state is part of what a client keeps: first and second moments and the client's own step count, so a client that
sat out some rounds still corrects its bias by its own steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

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
    rates: Mapping[str, float | Sequence[float]] | None = None,
) -> None:
    """One step of Adam (Kingma and Ba, 2015), in place, with L2 decay added to the gradient of the ``model.`` weights.

    Masks and other private switches do not decay: Adam normalises its step, so even a tiny decay would pull every entry
    without a gradient of its own to zero at full speed. `rates` names weights with a learning rate of their own, or with one
    for each client. Where all clients are at the same step and rate the stacked tensors go in whole; otherwise each client's
    slice goes in with its own.
    """
    step = state[STEP]
    step += 1
    clients, together = len(step), bool((step == step[0]).all())
    # What goes into one call: (name, client), or (name, None) for all clients.
    groups: dict[tuple[float, float], list[tuple[str, int | None]]] = {}
    for name in weights:
        rate, decay = (rates or {}).get(name, lr), weight_decay if name.startswith("model.") else 0.0
        if isinstance(rate, (int, float)) and together:
            groups.setdefault((rate, decay), []).append((name, None))
            continue
        each = [rate] * clients if isinstance(rate, (int, float)) else rate
        for m, own in enumerate(each):
            groups.setdefault((own, decay), []).append((name, m))
    for (rate, decay), slices in groups.items():
        sources = (
            weights,
            grads,
            {name: state[FIRST + name] for name, _ in slices},
            {name: state[SECOND + name] for name, _ in slices},
        )
        lists = [[source[n] if m is None else source[n][m] for n, m in slices] for source in sources]
        torch._fused_adam_(
            lists[0],
            lists[1],
            lists[2],
            lists[3],
            [],
            [step[m or 0] for _, m in slices],
            lr=rate,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )
