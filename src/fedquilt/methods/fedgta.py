"""FedGTA: Li et al., FedGTA: Topology-aware Averaging for Federated Graph Learning, PVLDB 17(1), 2023.

A client spreads its model's soft labels over its graph without parameters, and sends two things about the result beside its
model: mixed moments, which are the moments of the spread labels over its nodes after each step, and its local smoothing
confidence, which is how sure those labels are, weighted by degree. The server averages for each client the models of those
whose moments have a cosine of at least `similarity_threshold` with its own, weighted by their confidence. So a client is
averaged with clients in which labels lie in the graph in the same way, and most with those that are large and sure.

Where the code and the paper differ, and why (what was measured is in `fedquilt docs fidelity`):

- *Spread labels are distributions.* The symmetric operator does not keep rows summing to one, so that the entropy of a row
  would depend on the degrees around it. Rows are divided by their sums before moments and entropy are taken. The public code
  takes a softmax of them instead (for the confidence at temperature 20), which leaves them near the uniform distribution.
- *Training labels.* A training node's own label takes the place of its soft one before labels spread, as in the public code.
  Without them (`known_labels=false`) the moments of the first rounds, when no model knows anything yet, are alike for everyone,
  and all are averaged: on Cora in ten parts the clients then never come apart at thresholds of 0.7 and less.
- *Confidence is a number of nodes.* The paper adds up degree times certainty over the nodes, which grows with the client's
  edges. Here it is the mean certainty, weighted by degree, times the number of nodes: the same but for the clients' mean
  degrees, and no site can claim more confidence than it has nodes.
- *All steps.* Moments are taken after every step of propagation, as in the paper; the public code takes those of the last.
- *Partial participation.* Averages and cosines are of the models and moments that everyone sent last
  (`fedquilt.training.newest_uploads`). A client that never sent is near nobody, and gets the average of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging, places_among, strangers
from fedquilt.methods.base import EMBEDDING, STANDING, RoundSizes, RunContext, State, register
from fedquilt.methods.base_adam import MODEL
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.diagnostics import effective_clients, pair_median
from fedquilt.methods.settings import Backbone, BackboneSettings, Count, Positive, Share
from fedquilt.nn.class_gaussians import training_labels
from fedquilt.nn.label_propagation import distributions, propagation
from fedquilt.nn.models import part
from fedquilt.nn.moments import Kind, mixed_moments, moment_count, smoothing_confidence

CONFIDENCE, DIAGNOSTIC = "confidence", "diagnostic."
NOTED = ("effective_clients", "accepted_clients", "similarity_median", "largest_confidence")
Cosine = Annotated[float, Field(ge=0, lt=1)]
Orders = Annotated[int, Field(ge=1, le=32)]


@dataclass(frozen=True)
class FedGtaSettings(BackboneSettings):
    """The backbone's settings and FedGTA's own.

    Attributes:
        lr: Adam's learning rate; GAMLP has not converged after a hundred rounds with 0.01.
        model: the backbone; GAMLP in the paper.
        similarity_threshold: epsilon, the cosine between moments from which on two clients are averaged; 0: all are.
        steps: k, how many steps soft labels spread (paper: 5).
        alpha: the share of a node's own soft label that every step keeps (paper: 0.5).
        orders: K, the highest order of the moments.
        moments: raw, central, or hybrid, which is both.
        confidence: weight models by their clients' confidence (off: all count the same).
        known_labels: spread the labels of training nodes in place of what the model says of them.
    """

    lr: Positive = 0.02
    model: Backbone = "gamlp"
    similarity_threshold: Cosine = 0.7
    steps: Count = 5
    alpha: Share = 0.5
    orders: Orders = 10
    moments: Kind = "hybrid"
    confidence: bool = True
    known_labels: bool = True


@register("fedgta")
class FedGta(BackboneMethod):
    """The server keeps the moments that each client sent last."""

    title = "FedGTA"
    paper = "Li et al., PVLDB 2023"
    admits = True
    averages_newest = True
    kind_versions = MappingProxyType({"partial": 2})
    newcomers = (
        "A newcomer is given the average by confidence, trains it for a round, sends the moments of its spread "
        "labels, and is given the average of those whose moments are like its own."
    )
    baseline = True
    Settings = FedGtaSettings
    settings: FedGtaSettings
    any_module = True
    single_uploads = "server compares the clients' moments and averages their models anew for each receiver"
    searched = (*BackboneMethod.searched, "hidden", "similarity_threshold")
    uploads = (
        TensorSpec(
            MODEL + "*",
            "The client's model after training: an attacker with it may infer properties of the client's nodes.",
            weights=True,
        ),
        TensorSpec(
            EMBEDDING,
            "Moments over the client's nodes of their classes (training nodes' true ones, what the model says of the others), "
            "spread to their neighbours: about how its classes are distributed, and how mixed its neighbourhoods are.",
        ),
        TensorSpec(
            CONFIDENCE,
            "Of how many of its nodes the client's model is sure, with well-connected ones counting more: at most all it has.",
            count=True,
        ),
    )
    downloads = (TensorSpec(MODEL + "*", "An average of the models of those whose moments are like this client's."),)

    def __init__(self, settings: FedGtaSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        super().__init__(settings, context, averaging)
        if settings.moments == "central" and settings.orders < 2:
            raise FedquiltError(
                "The first central moment is zero for everyone, so that moments=central with orders=1 tells no clients apart; "
                "set orders=2 or more, or moments=raw."
            )

    def needs_whole_graphs(self) -> str:
        """Moments are those of soft labels at all nodes."""
        return "what it sends are moments of soft labels that are propagated over the whole graph"

    def needs_classes(self) -> bool:
        """Moments are those of class probabilities."""
        return True

    def averages(self) -> bool:
        """For each client, those who are like it."""
        return True

    def sends(self, name: str) -> bool:
        """Confidence where it weights."""
        return super().sends(name) and (name != CONFIDENCE or self.settings.confidence)

    def size(self, nodes: int) -> int:
        """Besides, the soft labels after every step and a power of them."""
        return super().size(nodes) + 2 * nodes * self.settings.steps * self.context.outputs

    # -- at the client -------------------------------------------------------------------------------------------

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """The model, the moments of its soft labels, and their confidence."""
        s = self.settings
        message: Message = {MODEL + name: w for name, w in personal.items()}
        with torch.no_grad():
            soft = self.logits(personal, cohort).softmax(1)
            if s.known_labels:
                known: Tensor = cohort.once("training labels", training_labels)
                soft[cohort.train] = known[cohort.train]
            spread = [distributions(y) for y in propagation(cohort, soft, s.steps, s.alpha)]
            message[EMBEDDING] = mixed_moments(cohort, spread, s.orders, s.moments)
            if self.sends(CONFIDENCE):
                message[CONFIDENCE] = smoothing_confidence(cohort, spread[-1])
        return message

    # -- at the server -------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """How many moments a client sends."""
        return moment_count(self.settings.moments, self.settings.orders) * self.settings.steps * self.context.outputs

    def server_start(self) -> tuple[State, Message]:
        """No moments known yet; nothing is sent."""
        return {
            EMBEDDING: torch.zeros(self.context.clients, self.width),
            **{DIAGNOSTIC + name: torch.zeros(()) for name in NOTED},
        }, {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """Besides, everyone's moments, and tables over all pairs of a receiver and a sender."""
        moments = 4 * self.width * (self.context.clients + sizes.senders + sizes.receivers)
        return super().server_memory(sizes) + moments + 24 * sizes.senders * max(sizes.senders, sizes.receivers)

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """theta_i = sum_j H_j theta_j / sum_j H_j over the senders j whose moments are like those of i."""
        sent = dense(uploads[EMBEDDING])
        server[EMBEDDING][senders] = sent
        found = cosines(server[EMBEDDING][receivers], sent)
        share = self.shares_of(found, uploads)
        own = places_among(senders, receivers, self.context.clients)
        stacks = {name: dense(value) for name, value in uploads.items() if name.startswith(MODEL)}
        message: Message = {name: self.averaging.mix(share, stack, own) for name, stack in stacks.items()}
        confidence = self.confidences(uploads, len(sent), sent)
        noted = (
            effective_clients(share),
            (share > 0).sum(1).float().mean(),
            pair_median(cosines(sent, sent)),
            (confidence / confidence.sum()).max(),
        )
        for name, value in zip(NOTED, noted, strict=True):
            server[DIAGNOSTIC + name].copy_(value)
        return message

    def shares_of(self, similarity: Tensor, uploads: Message) -> Tensor:
        """The weight of each sender in each receiver's average: similarity [r, n] -> [r, n], rows sum to one."""
        near = similarity >= self.settings.similarity_threshold
        nearest = similarity >= similarity.max(1, keepdim=True).values
        near |= nearest & ~near.any(1, keepdim=True)
        weight = near * self.confidences(uploads, similarity.shape[1], similarity)
        return weight / weight.sum(1, keepdim=True)

    def confidences(self, uploads: Message, senders: int, like: Tensor) -> Tensor:
        """What each sender's model counts: [n], positive; bounded where the averaging rule does that."""
        if CONFIDENCE not in uploads:
            return like.new_ones(senders)
        stated = dense(uploads[CONFIDENCE]).clamp_min(1e-6)
        return self.averaging.limited_counts(stated.unsqueeze(1)).squeeze(1)

    # -- clients that come after training ----------------------------------------------------------------------------

    def newcomer_sends(self) -> tuple[str, ...]:
        """The moments."""
        return (EMBEDDING,)

    def keeps_uploads(self) -> bool:
        """Averages are made of the clients' models."""
        return True

    def newcomer_state(self, server: State) -> State:
        """The clients' models, moments and confidence."""
        return part(server, STANDING)

    def newcomer_greeting(self, server: State) -> Message:
        """The average of all by confidence."""
        known: Message = {**server}
        weight = self.confidences(known, len(server[EMBEDDING]), server[EMBEDDING])
        return {n: self.averaging.average(stack, weight) for n, stack in server.items() if n.startswith(MODEL)}

    def newcomer_download(self, server: State, uploads: Message) -> Message:
        """The average of the clients whose moments are like the newcomer's."""
        share = self.shares_of(cosines(dense(uploads[EMBEDDING]), server[EMBEDDING]), {**server})
        stacks = {name: stack for name, stack in server.items() if name.startswith(MODEL)}
        return {name: self.averaging.mix(share, stack, strangers(share)) for name, stack in stacks.items()}

    # -- what reports show -----------------------------------------------------------------------------------------

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """The clients that an average takes in, effectively and in number; the median cosine; the largest confidence."""
        return {name: server[DIAGNOSTIC + name] for name in NOTED}

    def similarity(self, server: State) -> Tensor | None:
        """The cosines between the moments that each client sent last."""
        return cosines(server[EMBEDDING], server[EMBEDDING])


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """The cosine of each row of one with each row of the other: [r, D], [n, D] -> [r, n]; 0 for a row of zeros."""
    return F.normalize(left, dim=1) @ F.normalize(right, dim=1).T
