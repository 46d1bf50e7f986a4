"""One step of Adam for many tensors in one call: PyTorch's fused operator, or the same in its public operators.

The fused operator `torch._fused_adam_` is private. Where a PyTorch does not have it, the step is computed tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def adam_update(
    weights: Sequence[Tensor],
    grads: Sequence[Tensor],
    first: Sequence[Tensor],
    second: Sequence[Tensor],
    steps: Sequence[Tensor],
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    epsilon: float,
) -> None:
    """Change weights and moments in place by a step of Adam (Kingma and Ba, 2015) with L2 decay added to the gradient.

    Args:
        weights, grads, first, second: tensors of equal shapes: the weights, their gradients, and the two moments.
        steps: for each of them the number of this step, from 1 on, as a tensor of one number.
        lr, betas, weight_decay, epsilon: Adam's settings.
    """
    if hasattr(torch, "_fused_adam_"):
        torch._fused_adam_(
            list(weights),
            list(grads),
            list(first),
            list(second),
            [],
            list(steps),
            lr=lr,
            beta1=betas[0],
            beta2=betas[1],
            weight_decay=weight_decay,
            eps=epsilon,
            amsgrad=False,
            maximize=False,
        )
        return
    for w, g, m, v, step in zip(weights, grads, first, second, steps, strict=True):
        grad = g.add(w, alpha=weight_decay) if weight_decay else g
        m.lerp_(grad, 1.0 - betas[0])
        v.mul_(betas[1]).addcmul_(grad, grad, value=1.0 - betas[1])
        unbiased = (v / (1.0 - betas[1] ** step)).sqrt_().add_(epsilon)
        w.sub_(lr / (1.0 - betas[0] ** step) * m / unbiased)
