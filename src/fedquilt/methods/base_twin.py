"""The base class of methods whose clients train two models: one that the server averages, and one that stays at home."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message
from fedquilt.methods.base import State, Update
from fedquilt.methods.base_adam import MODEL
from fedquilt.methods.fedavg import FedAvg
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import part
from fedquilt.nn.optim import DECAYED, clip_gradients

PERSONAL = "personal."


class TwinMethod(FedAvg):
    """FedAvg whose clients keep a second model, under ``personal.`` in the state, from the same start.

    Both take the same steps with the same learning rate, decay and dropout, each with moments of its own. A subclass gives the
    gradients of both.
    """

    def private(self, weights: Weights) -> State:
        """The second model, as the first one starts."""
        return {PERSONAL + name: w.clone() for name, w in weights.items()}

    def trained(self, state: State) -> Weights:
        """Both models."""
        return {name: tensor for name, tensor in state.items() if name.startswith(DECAYED)}

    def clip(self, grads: Weights, norm: float) -> None:
        """Cut the gradient of each of the two models to this norm."""
        for prefix in DECAYED:
            clip_gradients({name: grad for name, grad in grads.items() if name.startswith(prefix)}, norm)

    def second(self, state: State) -> Weights:
        """The second model's weights, by their names in the model."""
        return part(state, PERSONAL)

    def personal(self, state: State) -> State:
        """The second model."""
        return self.second(state)

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """The first model and the number of training nodes."""
        return super().upload(state, self.weights(state), cohort, down)

    def newcomer_receive(self, state: State, down: Message) -> None:
        """Both models start from the average: what clients' second models learned stays with them."""
        super().newcomer_receive(state, down)
        for name, own in self.second(state).items():
            own.copy_(state[MODEL + name])

    def newcomer_update(self, state: State, cohort: Cohort, down: Message) -> Update:
        """A long local round of both models from the average."""
        self.newcomer_receive(state, down)
        return super().newcomer_update(state, cohort, down)

    def distance(self, clients: State) -> Tensor:
        """How far each client's two models are apart, relative to the averaged one: |v - w| / |w|, [M]."""
        squares = [torch.zeros(len(next(iter(clients.values()))))] * 2
        for name, own in self.second(clients).items():
            shared = clients[MODEL + name].double().cpu()
            for place, each in enumerate((own.double().cpu() - shared, shared)):
                squares[place] = squares[place] + each.flatten(1).square().sum(1)
        return (squares[0] / squares[1].clamp_min(1e-30)).sqrt().float()
