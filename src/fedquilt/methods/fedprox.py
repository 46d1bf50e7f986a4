"""FedProx: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020.

FedAvg with a proximal term (mu / 2) ||w - w_received||^2 in each client's objective, so that local training stays near
the common model. At the first local step the term's gradient is zero (w = w_received), so with one full-batch epoch a
round FedProx *is* FedAvg; it differs from two local epochs on. Printed tables that show a gap at one epoch show noise.
In round 0 nothing has been received yet, and nothing pulls.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message, dense
from fedquilt.methods.base import State, register
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.settings import BackboneSettings, NonNegative
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights


@dataclass(frozen=True)
class FedProxSettings(BackboneSettings):
    """FedAvg's settings and one more.

    Attributes:
        mu: strength of the pull toward the received model.
    """

    mu: NonNegative = 0.001


@register("fedprox")
class FedProx(FedAvg):
    """FedAvg whose clients are pulled toward the received model."""

    title = "FedProx"
    paper = "Li et al., MLSys 2020"
    Settings = FedProxSettings
    searched = (*FedAvg.searched, "mu")
    settings: FedProxSettings

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The cross-entropy's gradient plus mu (w - w_received)."""
        grads, loss = super().gradients(state, cohort, dropout, down)
        for name, value in down.items():
            grads[name].add_(state[name] - dense(value), alpha=self.settings.mu)
        return grads, loss
