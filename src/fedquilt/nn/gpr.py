"""GPR-GNN (Chien et al., ICLR 2021): an MLP whose outputs are propagated by a learned polynomial of the graph.

With P = D^-1/2 (A + I) D^-1/2 (weighted where edges have weights) and features X,

    z = relu(X W + b) V + a,        logits = sum_k (w_k + s_k) P^k z,   k = 0 .. K.

The coefficients weight the distances, and may be negative: then neighbours speak against their own class. w is fixed, the
weights of APPNP, a walk that begins anew with probability RESTART at each step; s is learned and starts at zero. What is
propagated has as many columns as there are classes, which makes it cheap.

Memory: O(R H) for the hidden layer of a cohort of R rows, O(R C) for each power in training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights, linear
from fedquilt.nn.model import Output, Shapes, activate
from fedquilt.nn.propagation_models import RESTART


def walk_weights(order: int) -> list[float]:
    """w_0 .. w_K of APPNP with K steps: r (1 - r)^k, and (1 - r)^K for the last one, with r = RESTART. They sum to one."""
    return [RESTART * (1 - RESTART) ** k for k in range(order)] + [(1 - RESTART) ** order]


@dataclass(frozen=True)
class GprNet:
    """The network: the shapes of its weights, and its outputs as a function of a cohort and weights. It holds no state.

    Attributes:
        features, hidden, outputs: widths of the input, the hidden layer and the output.
        order: K.
        dropout: share of the hidden layer that is dropped in training, whatever the rate of other networks; None: their rate.
    """

    features: int
    hidden: int
    outputs: int
    order: int
    dropout: float | None = None

    feature_weights: ClassVar[tuple[str, ...]] = ("hidden.weight",)

    def shapes(self) -> Shapes:
        """The shape of every weight by name, without the leading client axis."""
        return {
            "hidden.weight": (self.features, self.hidden),
            "hidden.bias": (self.hidden,),
            "classifier.weight": (self.hidden, self.outputs),
            "classifier.bias": (self.outputs,),
            "steps": (self.order + 1,),
        }

    def __call__(self, cohort: Cohort, weights: Weights) -> Output:
        """Compute the logits of every row, and the hidden layer before its ReLU, without dropout."""
        hidden, near, far = self._before_last(cohort, weights, None)
        return Output(near + cohort.gcn @ far, hidden)

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the same with dropout, at the training nodes only: the last step of propagation is made only there."""
        if self.dropout is not None:
            dropout = Dropout(self.dropout, dropout.keys, dropout.step)
        hidden, near, far = self._before_last(cohort, weights, dropout)
        rows = cohort.training
        return Output(near[rows.index] + rows.gcn @ far, hidden[rows.index])

    def _before_last(self, cohort: Cohort, weights: Weights, dropout: Dropout | None) -> tuple[Tensor, Tensor, Tensor]:
        """The hidden layer before its ReLU, and near, far with logits = near + P far, by Horner's rule; at every row."""
        hidden = linear(cohort, cohort.x, weights["hidden.weight"], weights["hidden.bias"])
        active = activate(cohort, hidden, dropout, 0)
        z = linear(cohort, active, weights["classifier.weight"], weights["classifier.bias"])
        walk: Tensor = cohort.once(
            ("walk", self.order), lambda c: torch.tensor(walk_weights(self.order), device=c.device)
        )
        steps = weights["steps"] + walk
        first, *others = steps.unsqueeze(2).expand(-1, -1, self.outputs).unbind(1)
        far = cohort.scale(z, others.pop())
        for step in reversed(others):
            far = cohort.scale(z, step) + cohort.gcn @ far
        return hidden, cohort.scale(z, first), far
