"""Ditto: Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021.

Each client trains two models. One, w, is FedAvg's and knows nothing of the other. The second, v, stays at home and minimises
the client's loss plus (lambda / 2) ||v - w_received||^2; it is the one that is evaluated and exported. lambda = 0 is Local
and FedAvg side by side, a large lambda is FedAvg's model.

Where we differ: both models take `epochs` steps of Adam a round, where the paper's take steps of SGD, as many as is chosen for
each. The pull is not a part of the gradient but a proximal step after it, v = (v + a w_received) / (1 + a) with a = lr lambda:
for SGD that is the same objective, and Adam would make a full step of any pull, even of the rounding error of an average, in
weights that have no other gradient. In round 0 the pull is toward the common start, which is what the server would have sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message, dense
from fedquilt.methods.base import State, Update, register
from fedquilt.methods.base_adam import MODEL, along
from fedquilt.methods.base_twin import PERSONAL, TwinMethod
from fedquilt.methods.settings import BackboneSettings, NonNegative
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.optim import LearningRate


@dataclass(frozen=True)
class DittoSettings(BackboneSettings):
    """FedAvg's settings and one more.

    Attributes:
        pull: lambda, the strength of the personal model's pull toward the received one. A step goes lr lambda / (1 + lr lambda)
            of the way.
    """

    pull: NonNegative = 10.0


@register("ditto")
class Ditto(TwinMethod):
    """A personal model beside FedAvg's, pulled toward it."""

    title = "Ditto"
    paper = "Li et al., ICML 2021"
    newcomers = (
        "A newcomer is given the last average, from which its own model starts and toward which it is pulled; it "
        "sends nothing."
    )
    baseline = True
    Settings = DittoSettings
    searched = (*TwinMethod.searched, "pull")
    settings: DittoSettings

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Train both models; the pull is toward the model as the round begins."""
        self.receive(state, down)
        return self.train(state, cohort, self.received(state), self.steps(round))

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The losses' gradients of both models; the loss is the personal model's."""
        grads, _ = super().gradients(state, cohort, dropout, down)
        own, loss = self.effective_gradients(self.second(state), cohort, dropout)
        return grads | {PERSONAL + name: grad for name, grad in own.items()}, loss

    def move(self, state: State, cohort: Cohort, grads: Weights, down: Message) -> None:
        """A step of both models, then the personal one's pull: v = (v + a w_received) / (1 + a) with a = lr lambda."""
        super().move(state, cohort, grads, down)
        share = self.pulled(cohort)
        for name, value in down.items():
            own = state[PERSONAL + name.removeprefix(MODEL)]
            own.add_((dense(value) - own) * (along(share, own) if isinstance(share, Tensor) else share))

    def pulled(self, cohort: Cohort) -> LearningRate:
        """The share of the way to the received model that a step goes: lr lambda / (1 + lr lambda), one for all or [M]."""
        way = self.learning_rate(cohort) * self.settings.pull
        share = way / (1.0 + way)
        return share.float() if isinstance(share, Tensor) else share

    def findings(self, server: State, clients: State) -> dict[str, Tensor]:
        """How far each client's personal model is from its copy of the common one."""
        return {"personal_distance": self.distance(clients)}
