"""FedProto: Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022.

What crosses is one point a class: the mean of the embeddings of a client's training nodes of that class, with their number. The
server averages these prototypes over the clients that have the class, weighted by the numbers, and every client draws its own
classes toward the averages while it trains. No weight crosses.

Where the code and the paper differ, or the paper leaves it open:

- *Prototypes* are means over training nodes, computed without dropout after the local epochs. The embedding is the output of
  the last graph layer before its ReLU.
- *Distance.* Squared Euclidean, divided by the width, so that `prototype_weight` means the same for every width. The paper's
  term compares a client's class means with the averages, class by class; the authors' code compares every sample's embedding
  with the average of its class. `align` chooses between them.
- *Prediction* is by the client's own classifier, as the accuracies that the authors' code reports first. `classify="prototype"`
  takes the class whose prototype is nearest: the average where the client received one, else its own.
- *Some clients a round.* The average is over those that sent in the round; a class that none of them has keeps its average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.base import State, register
from fedquilt.methods.base_adam import MODEL, PREVIOUS, gradients_of, leaves_of
from fedquilt.methods.base_backbone import NETWORK, BackboneMethod
from fedquilt.methods.settings import BackboneSettings, MixedBackboneSettings, NonNegative
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.mixed_network import ProjectedNetwork
from fedquilt.nn.models import Network
from fedquilt.nn.prototypes import class_groups, class_means, nearest_scores

PROTOTYPE, KNOWN, COUNT = "prototype", "prototype.known", "class.count"
CHOSEN, CHOICE = "nearest.prototype", "nearest.known"  # what a client predicts by, where it predicts by prototypes
GAP, APART = "gap", "apart"  # in the server's state, for `diagnostics`
FLOOR = 1e-12  # training nodes for every class, so that one that nobody has is averaged without a division by zero


@dataclass(frozen=True)
class FedProtoSettings(MixedBackboneSettings):
    """The backbone's settings and the prototypes'.

    Attributes:
        prototype_weight: of the distance to the averaged prototypes in the loss; the paper has 1, or 0.1 for coloured images.
        align: what is drawn toward the averages: each class's mean, or every training node.
        classify: a client predicts by its own classifier, or by the nearest prototype.
        prototype_width: of a prototype; a client whose embeddings have another width maps them by a private linear layer. 0: as
            wide as `hidden`.
    """

    prototype_weight: NonNegative = 1.0
    align: Literal["classes", "nodes"] = "classes"
    classify: Literal["classifier", "prototype"] = "classifier"
    prototype_width: Annotated[int, Field(ge=0)] = 0


@register("fedproto")
class FedProto(BackboneMethod):
    """State: the model, and the averaged prototypes as they were received last, with the classes that have one."""

    title = "FedProto"
    paper = "Tan et al., AAAI 2022"
    admits = True
    newcomers = (
        "A newcomer is given the averaged prototypes and no weights: it trains a model of its own, whose classes "
        "are drawn toward them. It sends nothing."
    )
    baseline = True
    settings: FedProtoSettings
    Settings = FedProtoSettings
    searched = (*BackboneMethod.searched, "hidden", "prototype_weight")
    uploads = (
        TensorSpec(
            PROTOTYPE,
            "For each class, the mean embedding of the client's training nodes of that class; of a class with a single such "
            "node it is that node's own embedding.",
        ),
        TensorSpec(COUNT, "How many training nodes of each class the client has.", count=True),
    )
    downloads = (
        TensorSpec(PROTOTYPE, "The average of the participants' mean embeddings of each class.", shared=True),
        TensorSpec(KNOWN, "Which classes any participant had training nodes of.", shared=True),
    )
    single_uploads = ""
    client_settings = (*BackboneMethod.client_settings, *NETWORK)

    def needs_classes(self) -> bool:
        """A prototype is a class's."""
        return True

    @property
    def width(self) -> int:
        """D, the width of a prototype."""
        return self.settings.prototype_width or self.settings.hidden

    def network(self, s: BackboneSettings) -> Network:
        """The backbone, with a linear layer after its embeddings where these are not as wide as prototypes."""
        network = super().network(s)
        return network if s.hidden == self.width else ProjectedNetwork(network, s.hidden, self.width)

    def settings_alone(self, own: Mapping[str, Any]) -> Any:
        """The client's own network, with prototypes as wide as the run's."""
        return replace(super().settings_alone(own), prototype_width=self.width)

    def shares(self, name: str) -> bool:
        """No weight crosses."""
        return False

    def private(self, weights: Weights) -> State:
        """Nothing is received yet."""
        (some, *_) = weights.values()
        shape = (len(some), self.context.outputs)
        state = {PROTOTYPE: some.new_zeros(*shape, self.width), KNOWN: some.new_zeros(shape)}
        if self.settings.classify == "prototype":
            state |= {CHOSEN: some.new_zeros(*shape, self.width), CHOICE: some.new_zeros(shape)}
        return state

    # -- at the clients --------------------------------------------------------------------------------------------

    def receive(self, state: State, down: Message) -> None:
        """Copy the averages into the state."""
        for name, value in down.items():
            state[name].copy_(dense(value))

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The gradient of the task's loss and the distance to the averages; each client's loss [M] is the task's."""
        leaves = leaves_of(self.weights(state))
        output = self.model.training(cohort, leaves, dropout)
        total, each = self.task.training_loss(cohort, output.logits, dropout.draws)
        apart = self.distance(cohort, output.embedding[cohort.training.real], state)
        total = total + self.settings.prototype_weight * apart
        return {MODEL + name: grad for name, grad in gradients_of(total, leaves).items()}, each

    def distance(self, cohort: Cohort, embedding: Tensor, state: State) -> Tensor:
        """The distance of the training nodes' embeddings [T, D], or of their class means, to the averages, summed over clients.

        A class without an average is left out.
        """
        groups = class_groups(cohort)
        target, known = state[PROTOTYPE].flatten(0, 1), state[KNOWN].flatten(0, 1)  # [M C, D], [M C]
        if self.settings.align == "nodes":
            apart = (embedding - target[groups.index]).square().mean(1)
            return (apart * known[groups.index] * cohort.train_weight).sum()
        count = groups.counts.float()
        apart = (class_means(groups, embedding) - target).square().mean(1)
        return (apart * known * (count > 0)).sum()

    @torch.no_grad()
    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """Each class's mean embedding after training, without dropout, and its number of training nodes."""
        if self.context.batch_nodes:
            embedding = self.at_every_node(self.weights(state), cohort).embedding[cohort.train]
        else:
            calm = Dropout(0.0, state["dropout.key"], 0)
            embedding = self.model.training(cohort, self.weights(state), calm).embedding[cohort.training.real]
        groups, shape = class_groups(cohort), (cohort.clients, self.context.outputs)
        own, count = class_means(groups, embedding).view(*shape, -1), groups.counts.float().view(shape)
        if self.settings.classify == "prototype":
            received = state[KNOWN] > 0
            state[CHOSEN].copy_(torch.where(received.unsqueeze(2), state[PROTOTYPE], own))
            state[CHOICE].copy_(received | (count > 0))
        return {PROTOTYPE: own, COUNT: count}

    def personal(self, state: State) -> State:
        """The model, with the prototypes where it predicts by them."""
        nearest = {name: state[name] for name in (CHOSEN, CHOICE) if name in state}
        return self.weights(state) | nearest

    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        """The classifier's, or minus the squared distance to each class's prototype."""
        output = self.at_every_node({name: w for name, w in personal.items() if name not in (CHOSEN, CHOICE)}, cohort)
        if self.settings.classify == "classifier":
            return output.logits
        return nearest_scores(cohort, output.embedding, personal[CHOSEN], personal[CHOICE])

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """No class has a prototype; nothing is sent."""
        classes = self.context.outputs
        server = {PROTOTYPE: torch.zeros(classes, self.width), KNOWN: torch.zeros(classes)}
        return server | {GAP: torch.zeros(()), APART: torch.zeros(())} | self.previous_start(), {}

    def averages(self) -> bool:
        """The prototypes."""
        return True

    def evidence_of(self, name: str) -> tuple[str, int] | None:
        """Prototypes are averaged class by class, by training nodes."""
        return (COUNT, 0) if name == PROTOTYPE else None

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """sum_m n_mc p_mc / sum_m n_mc for every class c that a sender has."""
        sent, count = dense(uploads[PROTOTYPE]), dense(uploads[COUNT])
        before = server.get(PREVIOUS + PROTOTYPE)
        trust = self.trust({PROTOTYPE: before}, {PROTOTYPE: sent}, {PROTOTYPE: count > 0})
        counted = count * trust[PROTOTYPE].unsqueeze(1) if PROTOTYPE in trust else count
        floor = torch.full_like(count[:, :1], FLOOR)
        average = self.averaging.average_patches(sent, counted, floor, before)
        gap = torch.linalg.vector_norm(sent - average, dim=2)
        server[GAP].copy_((gap * count).sum() / count.sum().clamp_min(1.0))
        return self.sent_next(server, average, count.sum(0))

    def sent_next(self, server: State, average: Tensor, count: Tensor) -> Message:
        """Store the averages [C, D] of the classes with a count [C], and send what is known of every class."""
        here = count > 0
        server[PROTOTYPE].copy_(torch.where(here.unsqueeze(1), average, server[PROTOTYPE]))
        server[KNOWN].copy_(torch.where(here, 1.0, server[KNOWN]))
        pairs = server[KNOWN].outer(server[KNOWN]).triu(1)
        difference = server[PROTOTYPE].unsqueeze(0) - server[PROTOTYPE].unsqueeze(1)
        apart = torch.linalg.vector_norm(difference, dim=2)
        server[APART].copy_((apart * pairs).sum() / pairs.sum().clamp_min(1.0))
        message: Message = {PROTOTYPE: server[PROTOTYPE].clone(), KNOWN: server[KNOWN].clone()}
        self.remember(server, message)
        return message

    def summands(self, uploads: Message) -> State:
        """n_mc p_mc and n_mc."""
        count = dense(uploads[COUNT]).double()
        return {PROTOTYPE: dense(uploads[PROTOTYPE]).double() * count.unsqueeze(2), COUNT: count}

    def aggregate_sums(self, server: State, sums: State, receivers: Tensor) -> Message:
        """The same averages from the sums; how far clients are from them cannot be known."""
        count = sums[COUNT]
        server[GAP].fill_(torch.nan)
        return self.sent_next(server, (sums[PROTOTYPE] / count.clamp_min(FLOOR).unsqueeze(1)).float(), count)

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """How far clients' prototypes are from the averages, in units of the mean distance between two averaged classes."""
        return {
            "prototype_gap": server[GAP] / server[APART].clamp_min(1e-12),
            "prototype_distance": server[APART].clone(),
        }
