"""The base class of methods that train one of the usual graph neural networks at their clients."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RunContext, State, methods
from fedquilt.methods.base_adam import MODEL, AdamMethod, gradients_of, leaves_of
from fedquilt.methods.settings import BackboneSettings
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Model, Network, Shapes
from fedquilt.nn.module_backbone import ModuleNetwork


class BackboneMethod(AdamMethod):
    """A method on a backbone: see `fedquilt.nn.models`.

    Attributes:
        any_module: it needs no more of a network than its outputs and the names of its weights, so that a user's own module
            will do (`fedquilt.nn.module_backbone`).
    """

    settings: BackboneSettings
    any_module: ClassVar[bool] = False

    def __init__(self, settings: BackboneSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        super().__init__(settings, context, averaging)
        self.model = self.make_model()

    def make_model(self) -> Network:
        """The backbone that the settings name."""
        s, context = self.settings, self.context
        if s.model in Model.kinds:
            return Model.kinds[s.model](context.features, s.hidden, context.outputs, s.layers)
        if not self.any_module:
            able = [name for name, kind in methods().items() if getattr(kind, "any_module", False)]
            raise FedquiltError(
                f"Method '{self.name}' needs a network of fedquilt's own, such as model=gcn; the backbone '{s.model}' works "
                f"with {', '.join(able)}."
            )
        return ModuleNetwork(s.model, context.features, context.outputs, s, context.seed)

    @property
    def one_by_one(self) -> bool:
        """Whether clients are computed one after the other."""
        return isinstance(self.model, ModuleNetwork)

    def common_weights(self, clients: int, device: torch.device) -> Weights:
        """The common start; a user's module draws its own from the seed."""
        if isinstance(self.model, ModuleNetwork):
            return self.model.start(clients, device)
        return super().common_weights(clients, device)

    def ignores_edge_weights(self) -> str:
        """What the network says of itself, where it has an attribute of this name; else it uses them."""
        return str(getattr(self.model, "ignores_edge_weights", ""))

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
