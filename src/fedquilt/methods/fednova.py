"""FedNova: Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, NeurIPS 2020.

Where clients take different numbers of local steps, FedAvg's average leans toward those who take many. FedNova averages the
changes divided by the steps that made them, d_m = (w_m - w) / t_m, and goes t = sum_m p_m t_m such steps: w + t sum_m p_m d_m,
with p_m the share of the training nodes. Where all take the same number, it *is* FedAvg.

Where we differ: the steps are Adam's, whose moments stay at home, and t_m counts them as they are, where the paper also weights
them by an optimiser's momentum. Clients upload w + (t_u / t_m) (w_m - w) with t_u the run's own local epochs, and t_m / t_u as
a count, so that the server needs no more than averages: secure aggregation and robust rules work, and under differential
privacy, where a 1 is sent for every count, the server takes t = t_u.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.base import RoundSizes, State, Update, register
from fedquilt.methods.base_adam import MODEL, along
from fedquilt.methods.fedavg import TRAIN_NODES, FedAvg

EFFORT = TensorSpec(
    "effort",
    "The client's local epochs, as a multiple of the run's: nothing about its data. Where clients train in batches, its local "
    "steps, which tell about how many nodes it has.",
    count=True,
)
SENT = "sent."  # in the server's state: the model that was sent last


@register("fednova")
class FedNova(FedAvg):
    """FedAvg of changes per local step."""

    title = "FedNova"
    paper = "Wang et al., NeurIPS 2020"
    baseline = True
    uploads = (
        TensorSpec(
            MODEL + "*",
            "The received model moved by the client's training as far as the run's own epochs would have: an attacker with it "
            "may infer properties of the client's nodes.",
            weights=True,
        ),
        TRAIN_NODES,
        EFFORT,
    )

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Train; changes are from the model as the round begins."""
        self.receive(state, down)
        return self.train(state, cohort, self.received(state), self.steps(round))

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """FedAvg's with changes of the run's own number of steps, and the client's own number in parts of it."""
        message = super().upload(state, personal, cohort, down)
        own, steps = self.own_epochs(cohort), self.batches_an_epoch(cohort)
        effort = torch.ones_like(cohort.train_count) if own is None else (own / self.settings.epochs).float()
        if own is None and steps is None:
            return message | {EFFORT.name: effort}
        effort = effort if steps is None else effort * steps
        for name, before in down.items():
            message[name] = torch.lerp(dense(before), dense(message[name]), along(1.0 / effort, dense(before)))
        return message | {EFFORT.name: effort}

    def server_start(self) -> tuple[State, Message]:
        """The common start, and the mean effort for reports; nothing is sent."""
        known = {SENT + name: dense(value).clone() for name, value in self.public_start().items()}
        return known | {EFFORT.name: torch.ones(()), **self.previous_start()}, {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """The model that was sent last, beside what every server holds."""
        return super().server_memory(sizes) + sizes.upload

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """w + t (average - w) for every weight."""
        nodes, effort = dense(uploads[TRAIN_NODES.name]), dense(uploads[EFFORT.name])
        model = {name: dense(value) for name, value in uploads.items() if name.startswith(MODEL)}
        mean = self.averaging.average(effort.unsqueeze(1), nodes, torch.ones_like(effort[:1]))[0]
        return self.moved(server, self.average_all(server, model, nodes), mean)

    def aggregate_sums(self, server: State, sums: State, receivers: Tensor) -> Message:
        """The same from sum_m n_m w_m, sum_m n_m t_m and sum_m n_m."""
        mean = super().aggregate_sums(server, sums, receivers)
        return self.moved(server, mean, dense(mean.pop(EFFORT.name)))

    def moved(self, server: State, mean: Message, effort: Tensor) -> Message:
        """What is sent: as far from what was sent last, toward the average, as the mean effort says."""
        down: Message = {}
        for name, value in mean.items():
            sent = torch.lerp(server[SENT + name], dense(value), effort)
            server[SENT + name].copy_(sent)
            down[name] = sent
        server[EFFORT.name].copy_(effort)
        self.remember(server, down)
        return down

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """The mean local epochs of the round's clients, as a multiple of the run's; 1: FedAvg."""
        return {"mean_effort": server[EFFORT.name]}
