"""FedLIT: Xie et al., Federated Node Classification over Graphs with Latent Link-type Heterogeneity, WWW 2023.

Links that look alike in the data may mean different things: a co-author is not a competitor. Each client sorts its links into
latent types by what their two ends are, by clustering in turn with training, and passes messages along each type by layers of
its own. The server finds out which types of different clients are the same, and averages each type's layers.

    link of u and v: [h_u, h_v] with h = X W + b                      E-step: type of the nearest centroid, by cosine
    centroid: mean over the client's links of the type               M-step
    logits = (sum_c GNN_c(h, links of type c)) W' + b'

Where the code and the paper differ, or the paper leaves it open, and why (measured in `fedquilt docs fidelity`):

- *Direction.* In the public code the node with the smaller number comes first in [h_u, h_v], so that types depend on how nodes
  are numbered. Here a link is read in the direction that fits its type better.
- *Start.* The public code begins with k-means from random links; here with the mean link and those that are least like it,
  so that nothing is drawn.
- *Matching.* The public code pairs types greedily, one cosine after the other; here the best of all pairings is taken, which
  limits `types` to 6.
- *Self-loops.* A node counts for itself in every type, as in a GCN, so that a node without links has outputs too; with one type
  the method is FedAvg on a GCN with a projection in front.
- *Two linear maps in a row* (the projection, and one for each type) are one here: the type's first layer follows directly.
- *Averages* are weighted by training nodes, of the clients that have nodes with links of the type, or with none at all; the
  public code counts the clients that have such nodes alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.base import RoundSizes, State, Update, register
from fedquilt.methods.base_adam import MODEL, PREVIOUS, gradients_of, leaves_of
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.fedavg import TRAIN_NODES
from fedquilt.methods.settings import BackboneSettings, Count
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.link_types import (
    CENTROIDS,
    TypedGcn,
    assign,
    cluster,
    first_centroids,
    matched,
    nodes_by_type,
    orders_of,
)
from fedquilt.nn.models import Network, part

TYPED_NODES = "typed_nodes"
COMMON, KNOWN, ORDERS, DIAGNOSTIC = "common", "known", "orders", "diagnostic."  # in the server's state
EFFECTIVE, LARGEST, KEPT, AGREEMENT = "effective_types", "largest_type", "types_kept", "centroid_agreement"
FLOOR = 1e-6  # of a client without links of a type, in the average of its layers


@dataclass(frozen=True)
class FedLITSettings(BackboneSettings):
    """The backbone's settings and FedLIT's own.

    Attributes:
        model: gcn.
        types: latent types of links; with 1 the method is FedAvg.
        refresh: rounds between two clusterings.
        em_steps: how often links are assigned and centroids moved in one.
    """

    types: Annotated[int, Field(ge=1, le=6)] = 3
    refresh: Count = 1
    em_steps: Count = 1


@register("fedlit")
class FedLIT(BackboneMethod):
    """State: the model, in which the centroids are. The server keeps the common centroids, by which it matches types."""

    title = "FedLIT"
    paper = "Xie et al., WWW 2023"
    admits = True
    newcomers = (
        "A newcomer is given the last average of all layers and of the centroids of link types, by which it sorts "
        "its own links; it sends nothing."
    )
    baseline = True
    Settings = FedLITSettings
    settings: FedLITSettings
    searched = (*BackboneMethod.searched, "hidden", "types")
    single_uploads = "server finds out which of each client's link types are the same"
    uploads = (
        TensorSpec(
            MODEL + CENTROIDS,
            "For each type of links the mean over the client's links of the projected features of their two ends: what nodes "
            "are linked to each other on average. Of a type with a single link it is that link's two nodes.",
        ),
        TensorSpec(
            MODEL + "*",
            "The client's model after training: an attacker with it may infer properties of the client's nodes.",
            weights=True,
        ),
        TensorSpec(TYPED_NODES, "How many of the client's nodes have a link of each type.", count=True),
        TRAIN_NODES,
    )
    downloads = (
        TensorSpec(
            MODEL + "*", "The average of the participants' models and centroids, type by type as matched.", shared=True
        ),
    )

    def make_model(self) -> Network:
        """A GCN for each type of links."""
        s, context = self.settings, self.context
        if s.model != "gcn":
            raise FedquiltError(
                f"FedLIT has a graph convolution for each type of links, which model={s.model} has not; leave it out."
            )
        return TypedGcn(context.features, s.hidden, context.outputs, s.layers, s.types)

    def needs_whole_graphs(self) -> str:
        """Links are clustered over the whole graph."""
        return "it finds types among all links of a graph"

    def averages(self) -> bool:
        """All that is sent, type by type."""
        return True

    def ignores_edge_weights(self) -> str:
        """Convolutions use them."""
        return ""

    # -- at the client -------------------------------------------------------------------------------------------

    def common_weights(self, clients: int, device: torch.device) -> Weights:
        """The usual ones; biases and centroids are zero."""
        weights = super().common_weights(clients, device)
        zero = [name for name in weights if name.endswith(".bias") or name == CENTROIDS]
        return weights | {name: torch.zeros_like(weights[name]) for name in zero}

    def trained(self, state: State) -> Weights:
        """All but the centroids."""
        return {name: w for name, w in super().trained(state).items() if name != MODEL + CENTROIDS}

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The gradient of the task's loss, links of types as they are assigned now."""
        leaves = leaves_of(self.trained(state))
        weights = self.weights(leaves) | {CENTROIDS: state[MODEL + CENTROIDS]}
        logits = self.model.training(cohort, weights, dropout).logits
        total, each = self.task.training_loss(cohort, logits, dropout.draws)
        return gradients_of(total, leaves), each

    def round_kind(self, round: int) -> bool:
        """Whether links are clustered."""
        return round % self.settings.refresh == 0

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Cluster the links from the centroids that were received, or from the start; then train."""
        self.receive(state, down)
        h = self.typed.project(cohort, self.weights(state)).detach()
        centroids = state[MODEL + CENTROIDS]
        if MODEL + CENTROIDS not in down:
            centroids.copy_(first_centroids(cohort, h, self.settings.types)[0])
        elif self.round_kind(round):
            centroids.copy_(cluster(cohort, h, centroids, self.settings.em_steps)[0])
        count = nodes_by_type(cohort, assign(cohort, h, centroids), self.settings.types)
        update = self.train(state, cohort, down, self.steps(round))
        update.upload[TYPED_NODES] = count
        return update

    @property
    def typed(self) -> TypedGcn:
        """The network."""
        assert isinstance(self.model, TypedGcn)
        return self.model

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """The model with its centroids, and the number of training nodes."""
        message: Message = {MODEL + name: w for name, w in personal.items()}
        return message | {TRAIN_NODES.name: cohort.train_count}

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """No centroids yet; nothing is sent."""
        server: State = {COMMON: torch.zeros(self.settings.types, 2 * self.settings.hidden)}
        server |= {KNOWN: torch.zeros(1, dtype=torch.bool), ORDERS: orders_of(self.settings.types)}
        found = (EFFECTIVE, LARGEST, KEPT, AGREEMENT)
        return server | {DIAGNOSTIC + name: torch.zeros(()) for name in found} | self.previous_start(), {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """The layers of all clients with their types in the common order."""
        return super().server_memory(sizes) + sizes.senders * sizes.upload

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """Match the senders' types, then average each type's layers over those who have links of it."""
        sent = {name: dense(value) for name, value in uploads.items() if name.startswith(MODEL)}
        nodes, typed = dense(uploads[TRAIN_NODES.name]), dense(uploads[TYPED_NODES])
        centroids = sent.pop(MODEL + CENTROIDS)
        common = torch.where(server[KNOWN], server[COMMON], centroids[0])
        order, centroids, alike = matched(centroids, common, server[ORDERS])
        typed = typed.gather(1, order)
        client = torch.arange(len(order), device=order.device).unsqueeze(1)
        stacks = {name: w[client, order] if self.has_types(name) else w for name, w in sent.items()}
        stacks[MODEL + CENTROIDS] = centroids
        has = (typed > 0).float()
        before = {name: server.get(PREVIOUS + name) for name in stacks}
        votes = {name: has > 0 if self.has_types(name) else None for name in stacks}
        trust = self.trust(before, stacks, votes)
        down: Message = {}
        for name, stack in stacks.items():
            who = nodes * trust[name] if name in trust else nodes
            if self.has_types(name):
                evidence, floor = who.unsqueeze(1) * has, FLOOR * nodes.unsqueeze(1)
                down[name] = self.averaging.average_patches(stack, evidence, floor, before[name])
            else:
                down[name] = self.averaging.average(stack, who, before[name])
        self.remember(server, down)
        server[COMMON].copy_(dense(down[MODEL + CENTROIDS]))
        server[KNOWN].fill_(True)
        self.diagnose(server, order, typed, alike)
        return down

    def has_types(self, name: str) -> bool:
        """Whether an upload has types along its first axis."""
        return name.startswith(MODEL + "conv") or name == MODEL + CENTROIDS

    def diagnose(self, server: State, order: Tensor, typed: Tensor, alike: Tensor) -> None:
        """Write what `diagnostics` returns: order, typed and alike [n, k]."""
        share = typed / typed.sum(1, keepdim=True).clamp_min(1.0)
        known = (typed > 0).float()
        kept = (order == torch.arange(order.shape[1], device=order.device)).float()
        found = {
            EFFECTIVE: torch.exp(-torch.special.xlogy(share, share).sum(1)).mean(),
            LARGEST: share.amax(1).mean(),
            KEPT: kept.mean(),
            AGREEMENT: (alike * known).sum() / known.sum().clamp_min(1.0),
        }
        for name, value in found.items():
            server[DIAGNOSTIC + name].copy_(value)

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """Whether there are several types, and whether they are the same ones at different clients.

        effective_types      types that a client's nodes effectively have links of, exp(entropy), the mean over clients
        largest_type         share of the type that most of a client's nodes have links of, the mean over clients
        types_kept           share of types that the server found under the number that they had at the client
        centroid_agreement   mean cosine of a client's centroid with the common one, over types that it has
        """
        return part(server, DIAGNOSTIC)
