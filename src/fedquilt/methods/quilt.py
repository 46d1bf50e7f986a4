"""Quilt: the method of fedquilt, 2026; `fedquilt docs quilt` says more.

What features and labels *mean* is common to all data owners; *how the graph carries it* is not. So the feature layer and the
classifier are shared, and each client looks at its graph through filters of its own (`fedquilt.nn.filters`), which never
leave it. What is shared is averaged patch by patch over those who have evidence for it, and a private mask lets a client
differ, the more the more labels it has.

Two rules make the sharing work:

- *Evidence.* Each patch of the shared weights is averaged over those who have something to say about it: the weights of a
  feature over the clients by how many of their training nodes have the feature, themselves or in a neighbour; the classifier's
  weights of a class by how many training nodes are of that class:

      W[f] = sum_m e_mf W_m[f] / sum_m e_mf

  A plain average lets clients that never saw a feature vote on it with the random numbers they started from.
- *Reach.* Each client keeps a private mask and works with W (1 + O_m). Its mask learns at the rate lr n_m / (n_m + reach),
  where n_m is the number of its training nodes: who has many labels can afford to differ, who has few relies on the others.
  What is sent is W, without the mask.

Nothing about anyone's structure crosses: no coefficients, no mask, and nothing of a node.

How it came about, what every part is worth and what was left out is in `fedquilt docs quilt`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import scipy.sparse as sp
import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RoundSizes, RunContext, State, register
from fedquilt.methods.base_adam import MODEL, PREVIOUS
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.fedavg import AVERAGE, TRAIN_NODES, WEIGHTS
from fedquilt.methods.settings import BackboneSettings, Count, NonNegative, Positive, Rate
from fedquilt.methods.sums import along_axis
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.filters import FILTER, IDENTITY, Basis, FilterNet, features_of, of_each_once, side_by_side
from fedquilt.nn.layers import Weights, masked
from fedquilt.nn.models import Network, matrices
from fedquilt.nn.module_backbone import check_backbone
from fedquilt.nn.optim import LearningRate
from fedquilt.tasks.node_classification import training_class_counts

FilterOrBackbone = Annotated[str, AfterValidator(partial(check_backbone, others=("filter",)))]
MASK = "mask."
EVIDENCE = FEATURES_SEEN, CLASSES_SEEN = "seen.features", "seen.classes"
FLOOR = 1e-3  # evidence a training node for every patch, so that a patch without other evidence is averaged plainly


@dataclass(frozen=True)
class QuiltSettings(BackboneSettings):
    """The backbone's settings and Quilt's own.

    Attributes:
        model: filter (private polynomial filters, `fedquilt.nn.filters`), or one of fedquilt's backbones, such as sage.
        order: how many steps away the filters reach.
        groups: groups of hidden units, each with a filter of its own; at the start they look at different distances.
        basis: the filters' basis: powers scaled to be equally loud, plain powers (monomial), or chebyshev.
        filter_lr: Adam's learning rate for the filters' coefficients.
        node_dropout: share of nodes whose input is dropped in a training step, before it spreads.
        identity: rows of a private table by which a client can tell who a neighbour is, for graphs where that says more than
            what neighbours look like; 0: none.
        evidence: average by evidence (off: by training nodes, as FedAvg does).
        masks: private masks on the shared weights.
        reach: training nodes at which a client's mask learns half as fast as the weights.
        share: what is averaged: layer (what reads features), head (the classifier), filter; what is not named stays at home.
    """

    model: FilterOrBackbone = "filter"
    order: Count = 4
    groups: Count = 5
    basis: Basis = "scaled"
    filter_lr: Positive = 0.02
    node_dropout: Rate = 0.2
    identity: Annotated[int, Field(ge=0)] = 0
    evidence: bool = True
    masks: bool = True
    reach: NonNegative = 200.0
    share: str = "layer,head"


@register("quilt")
class Quilt(BackboneMethod):
    """State: the shared weights as trained since (``model.``), masks (``mask.``), coefficients and the table of identities."""

    title = "Quilt"
    paper = "fedquilt, 2026"
    admits = True
    newcomers = (
        "A newcomer is given the shared layers as averaged by evidence, and trains them with graph filters and "
        "masks of its own; it sends nothing."
    )
    Settings = QuiltSettings
    searched = (*BackboneMethod.searched, "hidden", "node_dropout", "filter_lr", "reach")
    settings: QuiltSettings
    uploads = (
        WEIGHTS,
        TensorSpec(
            FILTER,
            "The coefficients of the client's graph filters; only if you ask for it with share=filter.",
            weights=True,
        ),
        TensorSpec(
            FEATURES_SEEN,
            "For each feature, how many training nodes have it, themselves or in a neighbour.",
            count=True,
        ),
        TensorSpec(CLASSES_SEEN, "How many training nodes of each class the client has.", count=True),
        TRAIN_NODES,
    )
    downloads = (AVERAGE, TensorSpec(FILTER, "The average of the participants' coefficients.", shared=True))
    single_uploads = ""

    def __init__(self, settings: QuiltSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        self.shared = {part.strip() for part in settings.share.split(",") if part.strip()}
        if unknown := self.shared - {"layer", "head", "filter"}:
            raise FedquiltError(f"Quilt cannot share '{min(unknown)}': give share as any of layer, head, filter.")
        if settings.model != "filter" and (settings.identity or "filter" in self.shared):
            raise FedquiltError(
                f"identity and share=filter are for model=filter, not {settings.model}; leave them out."
            )
        if settings.model == "filter" and settings.layers != QuiltSettings.layers:
            raise FedquiltError(
                "layers is for the usual backbones, such as sage; model=filter reaches farther with order."
            )
        super().__init__(settings, context, averaging)
        self.maskable = matrices(self.model.shapes()) if settings.masks else ()

    def make_model(self) -> Network:
        """The filter network, or the backbone that the settings name."""
        s, context = self.settings, self.context
        if s.model != "filter":
            return super().make_model()
        return FilterNet(
            context.features, s.hidden, context.outputs, s.order, s.groups, s.identity, s.node_dropout, s.basis
        )

    def shares(self, name: str) -> bool:
        """Whether the weight `name` is averaged with the others'."""
        return ("head" if name.startswith("classifier.") else "layer") in self.shared

    def sends(self, name: str) -> bool:
        """Weights and coefficients are sent where they are shared; evidence where it is used."""
        asked = {
            WEIGHTS.name: bool(self.shared & {"layer", "head"}),
            FILTER: "filter" in self.shared,
            FEATURES_SEEN: self.settings.evidence and "layer" in self.shared,
            CLASSES_SEEN: self.settings.evidence and "head" in self.shared and self.task.has_classes,
            TRAIN_NODES.name: bool(self.shared),
        }
        return asked.get(name, super().sends(name))

    def needs_whole_graphs(self) -> str:
        """A table of identities has a row for each node of the whole graph."""
        return "identity has rows for the nodes of the whole graph; set identity=0" if self.settings.identity else ""

    def averages(self) -> bool:
        """What is shared, if anything is."""
        return bool(self.shared)

    # -- at the client -------------------------------------------------------------------------------------------

    def private(self, weights: Weights) -> State:
        """Masks of ones, stored as offsets from one; filters that pass one distance each; a table of zeros for identities."""
        state = {MASK + name: torch.zeros_like(weights[name]) for name in self.maskable}
        if isinstance(self.model, FilterNet):
            state |= self.model.private_start(weights["hidden.bias"])
        return state

    def own(self, state: State) -> Weights:
        """The coefficients and the table of identities."""
        return {name: state[name] for name in (FILTER, IDENTITY) if name in state}

    def trained(self, state: State) -> Weights:
        """The model, the masks, the coefficients and the table of identities."""
        return super().trained(state) | {MASK + name: state[MASK + name] for name in self.maskable} | self.own(state)

    def rates(self, cohort: Cohort) -> dict[str, LearningRate]:
        """The coefficients' own, and each client's for its mask: lr n / (n + reach)."""
        nodes = cohort.train_count
        own = self.learning_rate(cohort) * nodes / (nodes + self.settings.reach).clamp_min(1.0)
        return {FILTER: self.settings.filter_lr} | {MASK + name: own for name in self.maskable}

    def effective(self, state: State) -> Weights:
        """The effective weights: W (1 + O) where there is a mask."""
        return masked(self.weights(state), {name: state[MASK + name] for name in self.maskable}) | self.own(state)

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The cross-entropy's at V = W (1 + O): dW = dV (1 + O) and dO = dV W."""
        grads, loss = self.effective_gradients(self.effective(state), cohort, dropout)
        out: Weights = {name: grads.pop(name) for name in self.own(state)}
        for name, grad in grads.items():
            if name in self.maskable:
                out[MASK + name] = grad * state[MODEL + name]
                grad.addcmul_(grad, state[MASK + name])
            out[MODEL + name] = grad
        return out, loss

    def personal(self, state: State) -> State:
        """The effective weights with the coefficients and identities."""
        return self.effective(state)

    def receive(self, state: State, down: Message) -> None:
        """Copy the averages into the state."""
        for name, value in down.items():
            state[name].copy_(dense(value))

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """The shared weights without the mask, and the evidence for them."""
        message: Message = {MODEL + name: w for name, w in self.weights(state).items() if self.shares(name)}
        if self.sends(FILTER):
            message[FILTER] = state[FILTER]
        if self.sends(FEATURES_SEEN):
            message[FEATURES_SEEN] = cohort.once(
                FEATURES_SEEN, lambda c: of_each_once(c, FEATURES_SEEN, features_seen_by)
            )
        if self.sends(CLASSES_SEEN):
            message[CLASSES_SEEN] = cohort.once(CLASSES_SEEN, lambda c: of_each(c, training_class_counts))
        if self.sends(TRAIN_NODES.name):
            message[TRAIN_NODES.name] = cohort.train_count
        return message

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """What the averaging rule needs; nothing is sent."""
        return self.previous_start(), {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """Evidence with its floor, and its share of all clients': for each client, feature and class."""
        return super().server_memory(sizes) + 12 * sizes.senders * max(self.context.features, self.context.outputs)

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """Each patch averaged over those who have evidence for it."""
        if not self.shared:
            return {}
        nodes = dense(uploads[TRAIN_NODES.name])
        floor = FLOOR * nodes.unsqueeze(1)
        names = [name for name in uploads if name not in EVIDENCE and name != TRAIN_NODES.name]
        turned: State = {}  # with patches along the first axis, where there are any
        before: dict[str, Tensor | None] = {}
        seen: dict[str, Tensor | None] = {}
        for name in names:
            evidence, axis = self.evidence_of(name) or (None, 0)
            sent, last = dense(uploads[name]), server.get(PREVIOUS + name)
            turned[name] = sent.transpose(1, axis % (sent.dim() - 1) + 1)
            before[name] = None if last is None else last.transpose(0, axis)
            seen[name] = None if evidence is None else dense(uploads[evidence])
        trust = self.trust(before, turned, {name: None if e is None else e > 0 for name, e in seen.items()})
        message: Message = {}
        for name in names:
            who, found = trust.get(name), seen[name]
            if found is None:
                weight = nodes if who is None else nodes * who
                message[name] = self.averaging.average(turned[name], weight, before[name])
            else:
                found = found if who is None else found * who.unsqueeze(1)
                average = self.averaging.average_patches(turned[name], found, floor, before[name])
                message[name] = average.transpose(0, (self.evidence_of(name) or ("", 0))[1]).contiguous()
        self.remember(server, message)
        return message

    def summands(self, uploads: Message) -> State:
        """e_mp W_m[p] for every patch p of a shared weight, and the evidence itself, of which e_mp is computed."""
        counts = {name: dense(v).double() for name, v in uploads.items() if name in (*EVIDENCE, TRAIN_NODES.name)}
        weights = {name: dense(v).double() for name, v in uploads.items() if name not in counts}
        return {name: w * self.patch_weight(name, counts, w) for name, w in weights.items()} | counts

    def aggregate_sums(self, server: State, sums: State, receivers: Tensor) -> Message:
        """sum_m e_mp W_m[p] / sum_m e_mp; the denominator is that of the summed evidence, in which e is linear."""
        counts = {name: value for name, value in sums.items() if name in (*EVIDENCE, TRAIN_NODES.name)}
        weights = {name: value for name, value in sums.items() if name not in counts}
        return {name: (w / self.patch_weight(name, counts, w)).float() for name, w in weights.items()}

    def patch_weight(self, name: str, counts: State, like: Tensor) -> Tensor:
        """e of the patches of a weight, shaped to multiply it: the evidence with its floor, or the training nodes.

        Counts and weights have a client axis, or are sums over clients.
        """
        nodes, (evidence, _) = counts[TRAIN_NODES.name], self.evidence_of(name) or (None, 0)
        if evidence is None:
            return along_axis(nodes, like, nodes.dim() - 1)
        by_patch = counts[evidence] + FLOOR * nodes.unsqueeze(-1)  # [..., P]
        if evidence == FEATURES_SEEN:
            return along_axis(by_patch, like, nodes.dim())
        return by_patch.view(*nodes.shape, *[1] * (like.dim() - nodes.dim() - 1), by_patch.shape[-1])

    def findings(self, server: State, clients: State) -> dict[str, Tensor]:
        """Each client's coefficients by distance, the mean over its groups: [M, K + 1]."""
        return {"coefficients": clients[FILTER].mean(1)} if FILTER in clients else {}

    def averages_by_evidence(self) -> bool:
        """Where evidence is sent."""
        return any(self.sends(name) for name in EVIDENCE)

    def evidence_of(self, name: str) -> tuple[str, int] | None:
        """What the weight `name` is averaged by: its first axis is features, or its last classes, or neither."""
        if not self.settings.evidence:
            return None
        if name.startswith(MODEL + "classifier."):
            return (CLASSES_SEEN, -1) if self.task.has_classes else None  # else by training nodes
        readers: tuple[str, ...] = getattr(self.model, "feature_weights", ())
        return (FEATURES_SEEN, 0) if name.removeprefix(MODEL) in readers else None


def of_each(cohort: Cohort, count: Callable[[Client], np.ndarray]) -> Tensor:
    """What `count` gives for each client, [M, P] float32."""
    return torch.from_numpy(np.stack([count(client) for client in cohort.members]).astype(np.float32)).to(cohort.device)


def features_seen(client: Client) -> np.ndarray:
    """[F]: training nodes that have the feature, themselves or in a neighbour."""
    seen: np.ndarray = features_seen_by([client])[0]
    return seen


def features_seen_by(clients: Sequence[Client]) -> np.ndarray:
    """The same of several clients: [M, F]."""
    trains = [client.training_nodes for client in clients]
    first = np.cumsum([0, *(client.graph.nodes for client in clients[:-1])])
    counts = [len(nodes) for nodes in trains]
    rows = np.concatenate(trains) + np.repeat(first, counts)
    has = (features_of(clients) != 0).astype(np.float32)
    joined = side_by_side(clients)[rows].astype(np.float32)
    joined.data[:] = 1.0  # who is a neighbour, however little the edge weighs
    near = joined @ has + has[rows] > 0
    place = np.ones(rows.size, np.float32), np.arange(rows.size), np.cumsum([0, *counts])
    seen = sp.csr_matrix(place, shape=(len(clients), rows.size)) @ near
    return seen.toarray() if sp.issparse(seen) else np.asarray(seen)
