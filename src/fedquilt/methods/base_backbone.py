"""The base class of methods that train one of the usual graph neural networks at their clients."""

from __future__ import annotations

from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RunContext, State
from fedquilt.methods.base_adam import MODEL, AdamMethod, gradients_of, leaves_of
from fedquilt.methods.settings import BackboneSettings
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Mlp, Model, Network, Shapes


class BackboneMethod(AdamMethod):
    """A method on a backbone: see `fedquilt.nn.models`."""

    settings: BackboneSettings

    def __init__(self, settings: BackboneSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        super().__init__(settings, context, averaging)
        self.model = self.make_model()

    def make_model(self) -> Network:
        """The backbone that the settings name."""
        s, context = self.settings, self.context
        return Model.kinds[s.model](context.features, s.hidden, context.outputs)

    def ignores_edge_weights(self) -> str:
        """A backbone of dense layers reads no edges."""
        return "model=mlp does not read edges" if isinstance(self.model, Mlp) else ""

    def shapes(self) -> Shapes:
        """The backbone's."""
        return self.model.shapes()

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The gradient of the task's loss, and each client's loss [M]."""
        effective, loss = self.effective_gradients(self.weights(state), cohort, dropout)
        return {MODEL + name: grad for name, grad in effective.items()}, loss

    def effective_gradients(self, weights: Weights, cohort: Cohort, dropout: Dropout) -> tuple[Weights, Tensor]:
        """The gradient of the task's loss with respect to weights as the network uses them, and each client's loss [M]."""
        leaves = leaves_of(weights)
        total, each = self.task.training_loss(
            cohort, self.model.training(cohort, leaves, dropout).logits, dropout.draws
        )
        return gradients_of(total, leaves), each

    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The personal models' logits, without dropout."""
        return self.model(cohort, personal).logits
