"""FedDyn: Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021.

Each client's objective has two more terms, -<g_m, w> + (alpha / 2) ||w - w_received||^2, where g_m sums up how far training
took it before: g_m' = g_m - alpha (w_m - w_received). They make the local minima agree with the common one. The server keeps
h, the same sum over all clients, and sends the average of the models minus h / alpha.

Where we differ: a few steps of Adam a round stand for the minimisation, at least `least_steps`. With one they do not: the
server adds up all the ways that averages went, undamped until the g_m have grown to what the gradients are, so that one step a
round overshoots (on Cora it stays at the largest class with every alpha from 0.0001 to 1). Averages are weighted by training
nodes, as in FedAvg here. The server keeps -h / alpha, which does not depend on alpha: the sum over rounds of senders / clients
times how far the average moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message, dense
from fedquilt.methods.base import RoundSizes, State, Update, register
from fedquilt.methods.base_adam import MODEL
from fedquilt.methods.fedavg import PRESENT, TRAIN_NODES, WEIGHTS, FedAvg
from fedquilt.methods.settings import BackboneSettings, Count, Positive
from fedquilt.methods.sums import mean_of_sums
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights

DUAL = "dual."  # in a client's state: g_m
SENT = "sent."  # in the server's state: the model that was sent last
OFFSET = "offset."  # in the server's state: -h / alpha


@dataclass(frozen=True)
class FedDynSettings(BackboneSettings):
    """FedAvg's settings and two more.

    Attributes:
        alpha: the strength of the regulariser.
        least_steps: a client takes so many training steps a round where its local epochs are fewer.
    """

    alpha: Positive = 0.01
    least_steps: Count = 5


@register("feddyn")
class FedDyn(FedAvg):
    """FedAvg with a regulariser that follows each client's drift."""

    title = "FedDyn"
    paper = "Acar et al., ICLR 2021"
    newcomers = "A newcomer is given the last corrected average, and trains it further; it sends nothing."
    baseline = True
    Settings = FedDynSettings
    searched = (*FedAvg.searched, "alpha")
    settings: FedDynSettings
    uploads = (WEIGHTS, TRAIN_NODES, PRESENT)

    def steps_of(self, epochs: int) -> int:
        """One for each local epoch, and `least_steps` where these are fewer."""
        return max(epochs, self.settings.least_steps)

    def private(self, weights: Weights) -> State:
        """g_m for each weight, zero at first."""
        return {DUAL + name: torch.zeros_like(w) for name, w in weights.items()}

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Train, then add to g_m how far that led."""
        self.receive(state, down)
        received = self.received(state)
        update = self.train(state, cohort, received, self.steps(round))
        for name, value in received.items():
            state[DUAL + name.removeprefix(MODEL)].sub_(state[name] - dense(value), alpha=self.settings.alpha)
        return update

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The loss's gradient - g_m + alpha (w - w_received)."""
        grads, loss = super().gradients(state, cohort, dropout, down)
        for name, value in down.items():
            grads[name].sub_(state[DUAL + name.removeprefix(MODEL)])
            grads[name].add_(state[name] - dense(value), alpha=self.settings.alpha)
        return grads, loss

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """FedAvg's and a one."""
        return super().upload(state, personal, cohort, down) | {PRESENT.name: torch.ones_like(cohort.train_count)}

    def server_start(self) -> tuple[State, Message]:
        """The common start and no offset; nothing is sent."""
        known = {name.removeprefix(MODEL): dense(value) for name, value in self.public_start().items()}
        server = {SENT + name: value.clone() for name, value in known.items()}
        server |= {OFFSET + name: torch.zeros_like(value) for name, value in known.items()}
        return server | {"length": torch.zeros(())} | self.previous_start(), {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """The model that was sent last and the offset, beside what every server holds."""
        return super().server_memory(sizes) + 2 * sizes.upload

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """The average of the models minus h / alpha."""
        nodes = dense(uploads[TRAIN_NODES.name])
        model = {name: dense(value) for name, value in uploads.items() if name.startswith(MODEL)}
        return self.offset(server, self.average_all(server, model, nodes), len(nodes) / self.context.clients)

    def summands(self, uploads: Message) -> State:
        """n_m w_m, n_m, and the ones as they are."""
        each = super().summands({name: value for name, value in uploads.items() if name != PRESENT.name})
        return each | {PRESENT.name: dense(uploads[PRESENT.name]).double()}

    def aggregate_sums(self, server: State, sums: State, receivers: Tensor) -> Message:
        """The same from sums."""
        present = (sums[PRESENT.name] / self.context.clients).clamp_max(1.0).float()
        means = mean_of_sums({n: v for n, v in sums.items() if n != PRESENT.name}, TRAIN_NODES.name)
        return self.offset(server, {**means}, present)

    def offset(self, server: State, mean: Message, share: Tensor | float) -> Message:
        """Add this share of the average's way to the offset, in place; the average and the offset are what is sent."""
        squares = torch.zeros_like(server["length"])
        down: Message = {}
        for name, value in mean.items():
            weight, sent = name.removeprefix(MODEL), dense(value)
            offset = server[OFFSET + weight]
            offset += share * (sent - server[SENT + weight])
            down[name] = sent + offset
            server[SENT + weight].copy_(sent + offset)
            squares += offset.square().sum()
        server["length"].copy_(squares.sqrt())
        self.remember(server, down)
        return down

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """The length of h / alpha: how far what is sent is from the average of the models."""
        return {"offset_norm": server["length"]}
