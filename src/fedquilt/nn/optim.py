"""Adam over stacked weights, one fused step for all clients; and gradient descent, which has no state.

Each client has its own state of Adam: both moments and a step count. So the bias correction of a client that skipped some
rounds uses the steps that it took itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedquilt.devices.device import has_kernels
from fedquilt.devices.fused_adam import adam_update
from fedquilt.nn.layers import Weights

FIRST, SECOND, STEP = "adam.first.", "adam.second.", "adam.step"
# Beginnings of the names of weights that decay: a model's, and those of a second model that a client keeps to itself.
DECAYED = ("model.", "personal.")
BETAS = (0.9, 0.999)
EPSILON = 1e-8
LearningRate = float | Tensor  # one for all clients, or one for each [M]


def adam_start(weights: Weights) -> Weights:
    """Return the initial state: zero moments for every weight, and a step count [M] (float32, as the fused kernel needs).

    Without weights there is no state.
    """
    if not weights:
        return {}
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
    """Take one step of Adam (Kingma and Ba, 2015), in place, with L2 decay added to the gradient of models' weights.

    Masks and other private parameters do not decay: Adam normalises its step, so even a tiny decay would move every entry
    that has no gradient to zero at full speed. `rates` gives weights by name their own learning rate, or one for each client
    [M].
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


def sgd_step(
    weights: Weights,
    grads: Weights,
    lr: float,
    weight_decay: float,
    rates: Mapping[str, LearningRate] | None = None,
) -> None:
    """Take one step of gradient descent without momentum, in place: w - lr (grad + decay w); arguments as of `adam_step`."""
    for name, w in weights.items():
        rate, decay = (rates or {}).get(name, lr), _decay(name, weight_decay)
        grad = grads[name].add(w, alpha=decay) if decay else grads[name]
        if isinstance(rate, Tensor):
            w.sub_(grad * rate.to(w.dtype).view(-1, *[1] * (w.dim() - 1)))
        else:
            w.sub_(grad, alpha=rate)


def clip_gradients(grads: Weights, norm: float) -> None:
    """Cut each client's gradient, over all weights [M, ...] together, to a Euclidean norm of at most `norm`, in place.

    Nothing is read on the host. A gradient that is not finite stays so: where it comes from, clipping hides nothing.
    """
    squares = torch.stack([grad.flatten(1).double().square().sum(1) for grad in grads.values()]).sum(0)
    factor = (norm / squares.sqrt().clamp_min(norm)).float()
    for grad in grads.values():
        grad.mul_(factor.view(-1, *[1] * (grad.dim() - 1)))


def _decay(name: str, weight_decay: float) -> float:
    return weight_decay if name.startswith(DECAYED) else 0.0


def _update_by_rate(
    weights: Weights, grads: Weights, state: Weights, lr: float, weight_decay: float, rates: Mapping[str, LearningRate]
) -> None:
    """Take the same step without our kernels, by an operator that takes one step count and one learning rate per tensor.

    If all clients have the same step count and rate, stacked tensors are updated whole; otherwise client by client.
    """
    step = state[STEP]
    clients, together = len(step), bool((step == step[0]).all())
    # What one call updates, by rate and decay: weight, gradient, both moments and step count, of all clients or of one.
    groups: dict[tuple[float, float], list[Sequence[Tensor]]] = {}
    for name, weight in weights.items():
        rate, decay = rates.get(name, lr), _decay(name, weight_decay)
        tensors = weight, grads[name], state[FIRST + name], state[SECOND + name]
        if isinstance(rate, float) and together:
            groups.setdefault((rate, decay), []).append((*tensors, step[0]))
            continue
        each = rate.tolist() if isinstance(rate, Tensor) else [rate] * clients
        for own, *rows in zip(each, *(tensor.unbind() for tensor in (*tensors, step)), strict=True):
            groups.setdefault((own, decay), []).append(rows)
    for (rate, decay), slices in groups.items():
        w, g, first, second, steps = zip(*slices, strict=True)
        adam_update(w, g, first, second, steps, rate, BETAS, decay, EPSILON)
