"""SCAFFOLD: Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020.

Clients whose data differ drift apart in local training. Each keeps a control variate c_m, its mean gradient in the round
before, and the server keeps their mean c; local steps follow g - c_m + c, which estimates everyone's gradient at the client's
weights. What the server averages are models and changes of control variates: c moves by (senders / clients) times their mean.

The paper's option II, c_m' = c_m - c + (w - w_m) / (steps x lr), is for SGD *the mean of the gradients g of the round*: that is
how we write it, and so it holds for `optimiser` = adam, too, where it is g - c_m + c that Adam is given. Averages are weighted
by training nodes, as in FedAvg here; the server's learning rate is 1. With one full-batch epoch of SGD a round and everyone
present, the average is FedAvg's, since the corrections add up to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.base import RoundSizes, State, Update, register
from fedquilt.methods.base_adam import MODEL, along
from fedquilt.methods.fedavg import AVERAGE, PRESENT, TRAIN_NODES, WEIGHTS, FedAvg
from fedquilt.methods.settings import BackboneSettings, Optimiser
from fedquilt.methods.sums import mean_of_sums
from fedquilt.nn.layers import Weights
from fedquilt.nn.optim import LearningRate, sgd_step

CONTROL = "control."  # in the states: c_m at a client, c at the server; and what the server sends
CHANGE = "change."  # c_m' - c_m
KEPT = "kept."  # beside a download while a client trains: c_m


@dataclass(frozen=True)
class ScaffoldSettings(BackboneSettings):
    """FedAvg's settings and one more.

    Attributes:
        optimiser: what makes a step of the corrected gradient: adam, or sgd without momentum, as in the paper (which needs a
            larger lr).
    """

    optimiser: Optimiser = "adam"


@register("scaffold")
class Scaffold(FedAvg):
    """FedAvg whose local gradients are corrected by control variates."""

    title = "SCAFFOLD"
    paper = "Karimireddy et al., ICML 2020"
    newcomers = (
        "A newcomer is given the last average, and trains it further without corrections, as it has no control "
        "variate; it sends nothing."
    )
    baseline = True
    Settings = ScaffoldSettings
    searched = FedAvg.searched
    settings: ScaffoldSettings
    uploads = (
        WEIGHTS,
        TensorSpec(
            CHANGE + "*",
            "How the client's mean gradient changed since its last round: as its model, it may reveal properties of its nodes.",
            weights=True,
            gradient=True,
        ),
        TRAIN_NODES,
        PRESENT,
    )
    downloads = (AVERAGE, TensorSpec(CONTROL + "*", "The mean gradient over all clients, as last known.", shared=True))

    # -- at the client -------------------------------------------------------------------------------------------

    def private(self, weights: Weights) -> State:
        """A control variate for each weight, zero before the client's first round."""
        return {CONTROL + name: torch.zeros_like(w) for name, w in weights.items()}

    def public_start(self) -> Message:
        """The common start, and no change."""
        known = super().public_start()
        return known | {CHANGE + name.removeprefix(MODEL): torch.zeros_like(dense(w)) for name, w in known.items()}

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Train; the control variate is made anew, while the old one corrects the steps."""
        self.receive(state, down)
        kept: Message = {}
        for name in self.shapes():
            kept[KEPT + name] = state[CONTROL + name].clone()
            state[CONTROL + name].zero_()
        return self.train(state, cohort, down | kept, self.steps(round))

    def move(self, state: State, cohort: Cohort, grads: Weights, down: Message) -> None:
        """A step along g - c_m + c; g counts in the new control variate, which is the mean over the round's steps."""
        own, steps = self.own_epochs(cohort), self.batches_an_epoch(cohort)
        for name in self.shapes():
            grad = grads[MODEL + name]
            count = self.settings.epochs if own is None else along(own.float(), grad)
            state[CONTROL + name] += grad / (count if steps is None else count * along(steps, grad))
            grad.sub_(dense(down[KEPT + name]))
            if CONTROL + name in down:  # in round 0 it is zero
                grad.add_(dense(down[CONTROL + name]))
        super().move(state, cohort, grads, down)

    def descend(
        self, trained: Weights, grads: Weights, state: State, decay: float, rates: Mapping[str, LearningRate]
    ) -> None:
        """A step of the optimiser that the settings name."""
        if self.settings.optimiser == "sgd":
            sgd_step(trained, grads, self.settings.lr, decay, rates)
        else:
            super().descend(trained, grads, state, decay, rates)

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """FedAvg's, the change of the control variate, and a one."""
        change: Message = {CHANGE + name: state[CONTROL + name] - dense(down[KEPT + name]) for name in self.shapes()}
        message = super().upload(state, personal, cohort, down)
        return message | change | {PRESENT.name: torch.ones_like(cohort.train_count)}

    # -- at the server -------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """c = 0 and what the averaging rule needs; nothing is sent."""
        before = {name: tensor for name, tensor in self.previous_start().items() if CHANGE not in name}
        control = {CONTROL + name: torch.zeros(shape) for name, shape in self.shapes().items()}
        return control | {"drift": torch.zeros(())} | before, {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """The control variate, beside what every server holds."""
        return super().server_memory(sizes) + sizes.download

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """The average of the models; c + (senders / clients) times the average change."""
        nodes = dense(uploads[TRAIN_NODES.name])
        model = {name: dense(value) for name, value in uploads.items() if name.startswith(MODEL)}
        change = {name: dense(value) for name, value in uploads.items() if name.startswith(CHANGE)}
        mean = {name: self.averaging.average(v, nodes, torch.zeros_like(v[0])) for name, v in change.items()}
        return self.average_all(server, model, nodes) | self.controlled(server, mean, len(nodes) / self.context.clients)

    def summands(self, uploads: Message) -> State:
        """n_m times all that is averaged, n_m, and the ones as they are."""
        each = super().summands({name: value for name, value in uploads.items() if name != PRESENT.name})
        return each | {PRESENT.name: dense(uploads[PRESENT.name]).double()}

    def aggregate_sums(self, server: State, sums: State, receivers: Tensor) -> Message:
        """The same from sums."""
        present = (sums[PRESENT.name] / self.context.clients).clamp_max(1.0).float()
        means = mean_of_sums({n: v for n, v in sums.items() if n != PRESENT.name}, TRAIN_NODES.name)
        change = {name: value for name, value in means.items() if name.startswith(CHANGE)}
        model = {name: value for name, value in means.items() if name.startswith(MODEL)}
        return {**model, **self.controlled(server, change, present)}

    def controlled(self, server: State, change: State, share: Tensor | float) -> Message:
        """Move c by this share of the mean change, in place; what is sent of it."""
        squares = torch.zeros_like(server["drift"])
        down: Message = {}
        for name, mean in change.items():
            control = server[CONTROL + name.removeprefix(CHANGE)]
            control += share * mean
            squares += control.square().sum()
            down[CONTROL + name.removeprefix(CHANGE)] = control.clone()
        server["drift"].copy_(squares.sqrt())
        return down

    def newcomer_state(self, server: State) -> State:
        """The last average of the models, without c: a newcomer's own control variate is unknown."""
        return {name: value for name, value in super().newcomer_state(server).items() if MODEL in name}

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """The length of c: the mean gradient that clients follow beside their own."""
        return {"control_norm": server["drift"]}

    def findings(self, server: State, clients: State) -> dict[str, Tensor]:
        """How far each client's control variate is from the mean, relative to it: what its steps are corrected by, [M]."""
        gap = torch.zeros(len(next(iter(clients.values()))))
        for name in self.shapes():
            own = clients[CONTROL + name].float().cpu()
            gap += (own - server[CONTROL + name].cpu()).flatten(1).square().sum(1)
        return {"control_distance": gap.sqrt() / server["drift"].cpu().clamp_min(1e-30)}
