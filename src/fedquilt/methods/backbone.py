"""What methods that train a graph neural network with Adam at their clients have in common."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.cohort import Cohort
from fedquilt.methods.contract import Method, State, Task, Update
from fedquilt.methods.settings import BackboneSettings
from fedquilt.nn.dropout import Dropout, client_keys
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Model
from fedquilt.nn.objective import training_loss
from fedquilt.nn.optim import adam_start, adam_step
from fedquilt.privacy.crossing import Message, dense

MODEL = "model."
KEYS = "dropout.key"


class BackboneMethod(Method):
    """State: the model's weights under ``model.``, Adam's moments, and each client's dropout key."""

    settings: BackboneSettings

    def __init__(self, settings: BackboneSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.model = Model.kinds[settings.model](task.features, settings.hidden, task.classes)

    @classmethod
    def defaults(cls, task: Task) -> dict[str, object]:
        """Local epochs are the dataset's."""
        return {"epochs": task.epochs}

    def start(self, cohort: Cohort) -> State:
        """The common start, fresh Adam moments."""
        weights = self.model.start(self.task.seed, cohort.clients, cohort.device)
        state = {MODEL + name: w for name, w in weights.items()} | self.private(weights)
        return state | adam_start(self.trained(state)) | {KEYS: client_keys(self.task.seed, cohort)}

    def private(self, weights: Weights) -> State:
        """What a method's clients keep beside the model's weights, by its name in the state."""
        return {}

    def trained(self, state: State) -> Weights:
        """The tensors of the state that Adam updates, by their names in the state."""
        return {name: tensor for name, tensor in state.items() if name.startswith(MODEL)}

    def weights(self, state: State) -> Weights:
        """The model's weights as they act, by their names in the model."""
        return {name.removeprefix(MODEL): w for name, w in state.items() if name.startswith(MODEL)}

    def receive(self, state: State, down: Message) -> None:
        """Take over what the server sent, in place: one tensor for all clients, or one a client."""
        for name, value in down.items():
            if name.startswith(MODEL):
                state[name].copy_(dense(value))

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Take over the download, train `epochs` full-batch epochs, give the upload."""
        self.receive(state, down)
        loss = torch.zeros(cohort.clients)
        for epoch in range(self.settings.epochs):
            dropout = Dropout(self.settings.dropout, state[KEYS], round * self.settings.epochs + epoch)
            grads, loss = self.gradients(state, cohort, dropout, down)
            adam_step(self.trained(state), grads, state, self.settings.lr, self.settings.weight_decay)
            self.after_step(state)
        personal = self.personal(state)
        return Update(self.upload(personal, cohort, down), personal, loss)

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The gradient of the local objective by the names of `trained`, and each client's loss [M]."""
        acting, loss = self.acting_gradients(self.weights(state), cohort, dropout)
        return {MODEL + name: grad for name, grad in acting.items()}, loss

    def acting_gradients(self, weights: Weights, cohort: Cohort, dropout: Dropout) -> tuple[Weights, Tensor]:
        """The gradient of the cross-entropy with respect to the weights as they act, and each client's loss [M]."""
        leaves = {name: w.detach().requires_grad_() for name, w in weights.items()}
        total, each = training_loss(cohort, self.model.training(cohort, leaves, dropout).logits)
        return dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True)), each

    def after_step(self, state: State) -> None:
        """What a method does to its state after each of Adam's steps."""

    def upload(self, personal: State, cohort: Cohort, down: Message) -> Message:
        """What goes to the server after training, from the personal models; nothing unless a method says so."""
        return {}

    def personal(self, state: State) -> State:
        """The weights as they act."""
        return self.weights(state)

    @torch.no_grad()
    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The personal models' logits, without dropout."""
        return self.model(cohort, personal).logits


def weighted_mean(stacked: Tensor, weight: Tensor) -> Tensor:
    """sum_m weight_m stacked_m / sum_m weight_m, [M, ...] -> [...]: one product, no copy of the stack."""
    share = weight / weight.sum()
    return (share @ stacked.reshape(stacked.shape[0], -1)).view(stacked.shape[1:])
