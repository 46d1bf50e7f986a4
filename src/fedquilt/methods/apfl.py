"""APFL: Deng, Kamani and Mahdavi, Adaptive Personalized Federated Learning, 2020.

Each client trains two models: w, which is FedAvg's, and v, which stays at home. It uses the mixture a v + (1 - a) w, and v is
trained so that the mixture, not v itself, fits the client's data. Each client has its own a in [0, 1], which follows the
gradient <v - w, grad f(mixture)>: up where the client's own model helps, down where the common one does.

Where we differ: v and w take steps of Adam, where the paper's take steps of SGD; a follows its gradient as it is, in every
local epoch. (Adam would not do for it: before the first average v and w are the same up to rounding, of which it makes full
steps.) `alpha_lr` = 0 keeps a as it is: alpha = 0 is then FedAvg, alpha = 1 is Local. a never leaves its client; a run's
findings have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message
from fedquilt.methods.base import State, register
from fedquilt.methods.base_adam import along
from fedquilt.methods.base_twin import PERSONAL, TwinMethod
from fedquilt.methods.settings import BackboneSettings, NonNegative, Share
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.optim import LearningRate

ALPHA = "alpha"


@dataclass(frozen=True)
class ApflSettings(BackboneSettings):
    """FedAvg's settings and two more.

    Attributes:
        alpha: the weight of a client's own model in the mixture before round 0.
        alpha_lr: the learning rate of that weight; 0: it stays.
    """

    alpha: Share = 0.5
    alpha_lr: NonNegative = 0.01


@register("apfl")
class Apfl(TwinMethod):
    """A mixture of FedAvg's model and one's own, whose weight adapts at each client."""

    title = "APFL"
    paper = "Deng et al., 2020"
    newcomers = (
        "A newcomer is given the last average, from which both its copy of the common model and its own start; it "
        "sends nothing."
    )
    baseline = True
    Settings = ApflSettings
    searched = (*TwinMethod.searched, "alpha", "alpha_lr")
    settings: ApflSettings

    def private(self, weights: Weights) -> State:
        """The second model, and alpha [M, 1]."""
        some = next(iter(weights.values()))
        alpha = torch.full((some.shape[0], 1), self.settings.alpha, device=some.device)
        return super().private(weights) | {ALPHA: alpha}

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """FedAvg's for w; with G, the gradient at the mixture, alpha G for v and <v - w, G> for alpha.

        The loss is the mixture's.
        """
        grads, _ = super().gradients(state, cohort, dropout, down)
        mixed, loss = self.effective_gradients(self.personal(state), cohort, dropout)
        shared, towards = self.weights(state), torch.zeros_like(state[ALPHA])
        for name, own in self.second(state).items():
            towards += ((own - shared[name]) * mixed[name]).flatten(1).sum(1, keepdim=True)
            grads[PERSONAL + name] = mixed[name] * along(state[ALPHA].flatten(), own)
        return grads | {ALPHA: towards}, loss

    def descend(
        self, trained: Weights, grads: Weights, state: State, decay: float, rates: Mapping[str, LearningRate]
    ) -> None:
        """A step of Adam for both models, and of gradient descent for alpha, which stays in [0, 1]."""
        super().descend(trained, grads, state, decay, rates)
        state[ALPHA].sub_(grads[ALPHA], alpha=self.settings.alpha_lr).clamp_(0.0, 1.0)

    def personal(self, state: State) -> State:
        """alpha v + (1 - alpha) w."""
        own = self.second(state)
        return {n: torch.lerp(w, own[n], along(state[ALPHA].flatten(), w)) for n, w in self.weights(state).items()}

    def findings(self, server: State, clients: State) -> dict[str, Tensor]:
        """Each client's alpha, and how far its own model is from its copy of the common one."""
        return {"alpha": clients[ALPHA].flatten(), "personal_distance": self.distance(clients)}
