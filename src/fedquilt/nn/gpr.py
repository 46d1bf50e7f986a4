"""GPR-GNN (Chien et al., ICLR 2021): an MLP whose outputs are propagated by a learned polynomial of the graph.

With P = D^-1/2 (A + I) D^-1/2 (weighted where edges have weights) and features X,

    z = relu(X W + b) V + a,        logits = sum_k (w_k + s_k) P^k z,   k = 0 .. K.

The coefficients weight the distances, and may be negative: then neighbours speak against their own class. w is fixed, the
weights of APPNP, a walk that begins anew with probability RESTART at each step; s is learned and starts at zero. What is
propagated has as many columns as there are classes, which makes it cheap.

With attention, nodes listen to those of their neighbours that score classes as they do, as in AGNN (Thekumparampil et al.,
2018). In place of P there is then Q,

    Q_ij = P_ij exp(t cos(c_i, c_j)) r_i,       c_i = z_i less its mean over classes,

where r_i leaves the sum of a row as it is in P. Q is constant in a training step: no gradient passes through it.

Memory: O(R H) for the hidden layer of a cohort of R rows, O(R C) for each power in training; with attention 44 bytes for
each of the E entries of P as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.edges import Links
from fedquilt.nn.layers import Weights, linear
from fedquilt.nn.model import Output, Shapes, activate
from fedquilt.nn.propagation_models import RESTART

STEPS = "steps"  # the name of s among the weights
Propagation = Callable[[Tensor], Tensor]  # one step of it: [R, C] -> [R, C]


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
        attention: t, how much more nodes listen to neighbours that score classes as they do; 0: to all alike.
    """

    features: int
    hidden: int
    outputs: int
    order: int
    dropout: float | None = None
    attention: float = 0.0

    feature_weights: ClassVar[tuple[str, ...]] = ("hidden.weight",)

    def shapes(self) -> Shapes:
        """The shape of every weight by name, without the leading client axis."""
        return {
            "hidden.weight": (self.features, self.hidden),
            "hidden.bias": (self.hidden,),
            "classifier.weight": (self.hidden, self.outputs),
            "classifier.bias": (self.outputs,),
            STEPS: (self.order + 1,),
        }

    def __call__(self, cohort: Cohort, weights: Weights) -> Output:
        """Compute the logits of every row, and the hidden layer before its ReLU, without dropout."""
        hidden, z = self._scores(cohort, weights, None)
        step = self._step(cohort, z)
        near, far = self._sums(cohort, weights, z, step)
        return Output(near + step(far), hidden)

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the same with dropout, at the training nodes only; without attention their last step is made only there."""
        if self.dropout is not None:
            dropout = Dropout(self.dropout, dropout.keys, dropout.step)
        hidden, z = self._scores(cohort, weights, dropout)
        step = self._step(cohort, z)
        near, far = self._sums(cohort, weights, z, step)
        rows = cohort.training
        last = step(far)[rows.index] if self.attention else rows.gcn @ far
        return Output(near[rows.index] + last, hidden[rows.index])

    def _scores(self, cohort: Cohort, weights: Weights, dropout: Dropout | None) -> tuple[Tensor, Tensor]:
        """The hidden layer before its ReLU [R, H], and z [R, C]."""
        hidden = linear(cohort, cohort.x, weights["hidden.weight"], weights["hidden.bias"])
        active = activate(cohort, hidden, dropout, 0)
        return hidden, linear(cohort, active, weights["classifier.weight"], weights["classifier.bias"])

    def _sums(self, cohort: Cohort, weights: Weights, z: Tensor, step: Propagation) -> tuple[Tensor, Tensor]:
        """Near, far [R, C] with logits = near + step(far), by Horner's rule."""
        walk: Tensor = cohort.once(
            ("walk", self.order), lambda c: torch.tensor(walk_weights(self.order), device=c.device)
        )
        steps = weights[STEPS] + walk
        first, *others = steps.unsqueeze(2).expand(-1, -1, self.outputs).unbind(1)
        far = cohort.scale(z, others.pop())
        for coefficients in reversed(others):
            far = cohort.scale(z, coefficients) + step(far)
        return cohort.scale(z, first), far

    def _step(self, cohort: Cohort, z: Tensor) -> Propagation:
        """One step of propagation: P, or Q of the class scores z."""
        if not self.attention:
            return cohort.gcn.__matmul__
        entries: _Entries = cohort.once("entries of P", _Entries)
        listened = entries.attended(z.detach(), self.attention)
        return lambda values: entries.links.sum(listened, values)


class _Entries:
    """The entries of P of a cohort, as pairs of rows.

    Attributes:
        links: the pairs. values: [E] P_ij. totals: [R, 1] the sums of its rows.
    """

    def __init__(self, cohort: Cohort) -> None:
        p = cohort.gcn.forward
        lengths, rows = p.crow_indices().long().diff(), torch.arange(cohort.rows, device=cohort.device)
        self.links = Links(rows.repeat_interleave(lengths), p.col_indices().long(), cohort.rows)
        self.values = p.values()
        self.totals = self._totals(self.values)

    def _totals(self, values: Tensor) -> Tensor:
        """The sum of each row, in a fixed order: [E] -> [R, 1]."""
        return self.links.sum(values, values.new_ones(self.links.columns, 1))

    def attended(self, z: Tensor, strength: float) -> Tensor:
        """Q_ij of every entry, without gradient: z [R, C] -> [E]."""
        centred = F.normalize(z - z.mean(1, keepdim=True), dim=1)
        values = self.values * torch.exp(strength * self.links.self_dot(centred))
        scale = self.totals / self._totals(values).clamp_min(torch.finfo(z.dtype).tiny)
        return values * scale.squeeze(1)[self.links.source]
