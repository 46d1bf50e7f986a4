"""FedRep: Collins et al., Exploiting Shared Representations for Personalized Federated Learning, ICML 2021.

The graph layers are averaged and the classifier stays at home, as in FedPer. In each round a client first trains its
classifier alone, on the layers that it received, for `head_epochs` epochs; then the layers alone, on that classifier, for
`epochs`. So the layers are always trained against classifiers that fit them.

Where we differ: Adam instead of SGD. Classifier and layers have step counts of their own, so that each is trained as by an
optimiser of its own; what is not trained does not move, whatever its moments are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message
from fedquilt.methods.base import State, register
from fedquilt.methods.base_adam import MODEL, gradients_of, leaves_of
from fedquilt.methods.fedper import FedPer
from fedquilt.methods.settings import BackboneSettings, Count
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.optim import STEP, LearningRate

HEAD_STEP = "head.step"


@dataclass(frozen=True)
class FedRepSettings(BackboneSettings):
    """FedPer's settings and one more.

    Attributes:
        epochs: local epochs a round in which the graph layers are trained.
        head_epochs: local epochs a round, before these, in which the classifier is trained.
    """

    head_epochs: Count = 10


@register("fedrep")
class FedRep(FedPer):
    """FedPer whose classifier is trained first, and alone."""

    title = "FedRep"
    paper = "Collins et al., ICML 2021"
    newcomers = (
        "A newcomer is given the last average of the graph layers; it trains a classifier of its own on them, then "
        "the layers. It sends nothing."
    )
    baseline = True
    Settings = FedRepSettings
    searched = (*FedPer.searched, "head_epochs")
    settings: FedRepSettings

    def private(self, weights: Weights) -> State:
        """The classifier's step count [M]."""
        some = next(iter(weights.values()))
        return {HEAD_STEP: torch.zeros(some.shape[0], device=some.device)}

    def steps_of(self, epochs: int) -> int:
        """Those of the classifier, then those of the graph layers."""
        return self.settings.head_epochs + epochs

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """Those of the classifier in the first `head_epochs` steps of a round, those of the graph layers in the others."""
        weights, layers = self.weights(state), dropout.step >= self.settings.head_epochs
        leaves = leaves_of({name: w for name, w in weights.items() if self.shares(name) == layers})
        outputs = self.model.training(cohort, {name: leaves.get(name, w) for name, w in weights.items()}, dropout)
        total, each = self.task.training_loss(cohort, outputs.logits, dropout.draws)
        return {MODEL + name: grad for name, grad in gradients_of(total, leaves).items()}, each

    def descend(
        self, trained: Weights, grads: Weights, state: State, decay: float, rates: Mapping[str, LearningRate]
    ) -> None:
        """A step of Adam by the step count of what is trained."""
        head = not any(self.shares(name.removeprefix(MODEL)) for name in trained)
        super().descend(trained, grads, {**state, STEP: state[HEAD_STEP]} if head else state, decay, rates)
