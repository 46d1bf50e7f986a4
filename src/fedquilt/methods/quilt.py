"""Quilt: the method of fedquilt, 2026; `fedquilt docs quilt` says more.

What features and labels *mean* is common to all data owners; *how the graph carries it* is not, and no single look at a graph
is right for every owner. So a client looks at its graph in several ways side by side, its views: at a node's own features
(`mlp`), through graph filters of its own (`fedquilt.nn.filters`), at what neighbours' features say of a node's class (`gpr`,
`fedquilt.nn.gpr`), and at a node beside the mean of its neighbours (`sage`). Each view shares its weights with the same view of
the other clients; the views that do best on validation nodes decide.

- *Shared weights* W. Clients send gradients; the server takes a step of Adam along their mean, weighted by training nodes
  (FedSGD with Adam; Reddi et al., Adaptive Federated Optimization, 2021). Adam scales the step of each weight by itself, so
  that a feature that few clients have is learned from those who have it, at full speed.
- *Private parts.* Filters never leave a client. Nor does its mask: it trains W (1 + O_m), and its mask learns at the rate
  lr n_m / (n_m + reach), where n_m is the number of its training nodes: who has many labels can afford to differ. It predicts
  with W (1 + g_m O_m), where g_m from 0 to 1 is voted on.
- *Mixture.* A client compares its views on its validation nodes and sends its votes, a number from 0 to 1 for each. It
  predicts with the mixture of views (`fedquilt.nn.views`) by exponential weights of everyone's average votes, and of its own
  the more the more validation nodes it has; g_m comes from votes for and against masks in the same way. Before the rounds
  DROPS views that are clearly worse than the best are dropped, before the last of them all but the best two: clients do not
  train or send them any more. Masks learn from then on.

With `average=weights` clients take the steps of Adam and the server averages weights, patch by patch over those who have
*evidence* for it: the weights of a feature by how many of a client's training nodes have it, themselves or in a neighbour, the
classifier's weights of a class by how many training nodes are of that class: W[f] = sum_m e_mf W_m[f] / sum_m e_mf. Quilt's
first version is model=filter hidden=128 average=weights order=4 groups=5 basis=scaled feature_dropout=0 lr=0.01 reach=200.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Places
from fedquilt.devices.device import on_host
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.averaging import WEIGHTED_MEAN, Averaging
from fedquilt.methods.base import RoundSizes, RunContext, State, Update, register
from fedquilt.methods.base_adam import MODEL, PREVIOUS, AdamMethod, along
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.base_evidence import (
    CLASSES_SEEN,
    EVIDENCE,
    EVIDENCE_UPLOADS,
    FEATURES_SEEN,
    FLOOR,
    EvidenceMethod,
)
from fedquilt.methods.fedavg import AVERAGE, TRAIN_NODES, WEIGHTS
from fedquilt.methods.quilt_settings import NETWORKS, SEVERAL, QuiltSettings
from fedquilt.methods.sums import mean_of_sums, weighted_summands
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.filters import FILTER, IDENTITY, FilterNet
from fedquilt.nn.gpr import GprNet
from fedquilt.nn.layers import Weights, masked
from fedquilt.nn.models import Network, matrices
from fedquilt.nn.optim import LearningRate, adam_start, adam_step
from fedquilt.nn.views import MIXTURE, Views, mixed, mixture_weights, prefix_of, votes_of
from fedquilt.tasks.base import find_task

MASK, GRADIENT = "mask.", "gradient."
VOTES = "votes"  # an upload, and in a client's state: its own
AVERAGE_VOTES = "views"  # a download, and in the states: everyone's, and DROPPED of a view that is not trained any more
DROPPED = -1.0
MASK_SHARE = "mask share"  # in a client's state: g [M], how much of its masks it predicts with
FEW_FEATURES = 100  # with fewer each one matters, and none are dropped by default
FEATURE_LAYER = 2  # the `layer` of the draws that drop features; see `Draws`
DROPS = (30, 60)  # before these rounds views are dropped
CLEARLY = 3.0  # points of the metric that a view may be below the best one before it is dropped
LEFT = 2  # how many views are left after the last of these rounds, and how many may have masks
GPR_ORDER, GPR_KEPT = (
    4,
    0.4,
)  # how many steps the view gpr reaches; what its dropout keeps of what that of the others keeps
VOTE_POINTS = 10.0  # points of the metric that a view may be below a client's best before its vote is zero
STEADY = 0.5  # how far everyone's votes move the average votes in a round
SAGE_WIDTH = 0.75  # of `hidden`: GraphSAGE has two weights for each feature and unit, which are sent


@register("quilt")
class Quilt(EvidenceMethod):
    """State: the shared weights (``model.``), their gradients since the round began (``gradient.``), or Adam's moments, masks
    (``mask.``), coefficients and the table of identities; of several views, the client's votes and everyone's."""

    title = "Quilt"
    paper = "fedquilt, 2026"
    compute_version = 3
    admits = True
    newcomers = (
        "A newcomer is given the shared layers of the views that are left and everyone's votes on them, and trains them with "
        "graph filters and masks of its own; it sends nothing."
    )
    Settings = QuiltSettings
    settings_before = MappingProxyType(
        {
            **{
                "model": "filter",
                "average": "weights",
                "feature_dropout": 0.0,
                "lr": 0.01,
                "reach": 200.0,
                "hidden": 128,
            },
            **{"order": 4, "groups": 5, "basis": "scaled"},
        }
    )
    searched = (*BackboneMethod.searched, "hidden", "node_dropout", "feature_dropout", "filter_lr", "reach")
    settings: QuiltSettings
    client_settings = ("weight_decay", "epochs")
    uses_validation = "Clients compare their views on validation nodes, for the weights of the views in the mixture."
    uploads = (
        TensorSpec(
            GRADIENT + "*",
            "How the client's loss changes with the shared weights: as a model after training, it may reveal properties of its "
            "nodes.",
            weights=True,
            gradient=True,
        ),
        WEIGHTS,
        TensorSpec(
            FILTER,
            "The coefficients of the client's graph filters; only if you ask for it with share=filter.",
            weights=True,
        ),
        *EVIDENCE_UPLOADS,
        TensorSpec(
            VOTES,
            "For each view, how many points it is below the client's best one on its validation nodes: 1 at none, 0 at ten; "
            "the same of its model with masks and without.",
            count=True,
        ),
        TRAIN_NODES,
    )
    downloads = (
        AVERAGE,
        TensorSpec(FILTER, "The average of the participants' coefficients.", shared=True),
        TensorSpec(AVERAGE_VOTES, "The average of the participants' votes on each view, and on masks.", shared=True),
    )
    single_uploads = ""

    def __init__(self, settings: QuiltSettings, context: RunContext, averaging: Averaging = WEIGHTED_MEAN) -> None:
        self.shared = {part.strip() for part in settings.share.split(",") if part.strip()}
        self.names = settings.views.split(",") if settings.model == SEVERAL else [settings.model]
        _check(settings, self.names, self.shared)
        super().__init__(settings, context, averaging)
        self.several = isinstance(self.model, Views)
        if self.several and not self.task.has_classes:
            raise FedquiltError(
                f"Quilt mixes views by the probabilities of classes, which the task {self.task.name} has not; give one view, "
                "such as views=filter."
            )
        self.maskable = matrices(self.model.shapes()) if settings.masks else ()

    @classmethod
    def defaults(cls, context: RunContext) -> dict[str, Any]:
        """Local epochs are the dataset's; a task without classes has one wide view; of few features none are dropped."""
        classes = find_task(context.task, context.task_settings).has_classes
        own: dict[str, Any] = {} if classes else {"views": "filter", "hidden": 2 * QuiltSettings.hidden}
        if context.features < FEW_FEATURES:
            own["feature_dropout"] = 0.0
        return super().defaults(context) | own

    def make_model(self) -> Network:
        """The network of the only view, or all of them."""
        if len(self.names) == 1:
            return self.view_network(self.names[0], self.settings.hidden)
        s = self.settings
        width = {"sage": max(1, round(SAGE_WIDTH * s.hidden))}
        networks = {name: self.view_network(name, width.get(name, s.hidden)) for name in self.names}
        return Views(networks, {"filter": (FILTER, IDENTITY)})

    def view_network(self, view: str, hidden: int) -> Network:
        """The filter network, GPR-GNN, or the backbone that the view is called."""
        s, context = self.settings, self.context
        if view == "gpr":
            dropout = 1.0 - GPR_KEPT * (1.0 - s.dropout)
            return GprNet(context.features, hidden, context.outputs, GPR_ORDER, dropout)
        if view != "filter":
            layers = max(1, s.layers - 1) if view == "mlp" and len(self.names) > 1 else s.layers
            return self.network(replace(s, model=view, hidden=hidden, layers=layers))
        return FilterNet(
            context.features, hidden, context.outputs, s.order, s.groups, s.identity, s.node_dropout, s.basis
        )

    @property
    def networks(self) -> dict[str, Network]:
        """The network of each view, by the beginning of its weights' names: empty for the only one."""
        if isinstance(self.model, Views):
            return {prefix_of(view): network for view, network in self.model.networks.items()}
        return {"": self.model}

    @property
    def sends_gradients(self) -> bool:
        """Whether the server takes the steps."""
        return self.settings.average == "gradients"

    def common_weights(self, clients: int, device: torch.device) -> Weights:
        """The common start; each view has the one that it would have alone."""
        if isinstance(self.model, Views):
            return self.model.start(self.context.seed, clients, device)
        return super().common_weights(clients, device)

    def shares(self, name: str) -> bool:
        """Whether the weight `name` is shared with the others."""
        return ("head" if self.in_view(name).startswith("classifier.") else "layer") in self.shared

    def in_view(self, name: str) -> str:
        """The name of a weight in the network of its view."""
        return name.split(".", 2)[2] if self.several else name

    def sends(self, name: str) -> bool:
        """Gradients or weights, and coefficients, are sent where they are shared; evidence and votes where they are used."""
        weights, by_evidence = (
            bool(self.shared & {"layer", "head"}),
            self.settings.evidence and not self.sends_gradients,
        )
        if name.startswith((MODEL, GRADIENT)):
            return weights and name.startswith(GRADIENT) == self.sends_gradients
        asked = {
            FILTER: "filter" in self.shared,
            FEATURES_SEEN: by_evidence and "layer" in self.shared,
            CLASSES_SEEN: by_evidence and "head" in self.shared and self.task.has_classes,
            VOTES: self.several and bool(self.shared),
            TRAIN_NODES.name: bool(self.shared),
        }
        return asked.get(name, super().sends(name))

    def needs_whole_graphs(self) -> str:
        """A table of identities has a row for each node of the whole graph."""
        return "identity has rows for the nodes of the whole graph; set identity=0" if self.settings.identity else ""

    def averages(self) -> bool:
        """What is shared, if anything is."""
        return bool(self.shared)

    # -- rounds ------------------------------------------------------------------------------------------------------

    def round_kind(self, round: int) -> Hashable:
        """Each round before which views are dropped is of its own kind."""
        return ("drops", round) if self.drops(round) else None

    def drops(self, round: int) -> bool:
        """Whether views are dropped before this round; where no weights are shared, nobody is told which."""
        return self.several and self.settings.drop and bool(self.shared & {"layer", "head"}) and round in DROPS

    @property
    def options(self) -> int:
        """How many things clients vote on: the views, and for and against masks."""
        return len(self.names) + (2 if self.maskable else 0)

    # -- at the client -------------------------------------------------------------------------------------------

    def private(self, weights: Weights) -> State:
        """Gradients; masks of ones, stored as offsets from one; filters that pass one distance each; a table of zeros for
        identities; votes for all views alike."""
        state = {MASK + name: torch.zeros_like(weights[name]) for name in self.maskable}
        if self.sends_gradients:
            state |= {GRADIENT + name: torch.zeros_like(w) for name, w in weights.items() if self.shares(name)}
        for prefix, network in self.networks.items():
            if isinstance(network, FilterNet):
                state |= network.private_start(weights[f"{prefix}hidden.bias"])
        if self.several:
            some = next(iter(weights.values()))
            alike, views = some.new_ones(len(some), self.options), len(self.names)
            state |= {VOTES: alike, AVERAGE_VOTES: alike.clone(), MIXTURE: alike[:, :views] / views}
            if self.maskable:
                state[MASK_SHARE] = alike[:, 0] / 2
        return state

    def own(self, state: State) -> Weights:
        """The coefficients and the table of identities."""
        return {name: state[name] for name in (FILTER, IDENTITY) if name in state}

    def trained(self, state: State) -> Weights:
        """The masks, the coefficients and the table of identities, and the weights whose gradients are not sent."""
        model = super().trained(state)
        if self.sends_gradients:
            model = {name: w for name, w in model.items() if not self.shares(name.removeprefix(MODEL))}
        return model | {MASK + name: state[MASK + name] for name in self.maskable} | self.own(state)

    def rates(self, cohort: Cohort) -> dict[str, LearningRate]:
        """The coefficients' own, and each client's for its mask: lr n / (n + reach)."""
        nodes = cohort.train_count
        own = self.learning_rate(cohort) * nodes / (nodes + self.settings.reach).clamp_min(1.0)
        return {FILTER: self.settings.filter_lr} | {MASK + name: own for name in self.maskable}

    def effective(self, state: State, views: Collection[str], share: Tensor | None = None) -> Weights:
        """The effective weights: W (1 + g O) where there is a mask, W of the views that are not among these.

        `share` is g [M]; None: one.
        """
        used = tuple(views)
        masks = {name: state[MASK + name] for name in self.maskable if used and name.startswith(used)}
        if share is not None:
            masks = {name: along(share, mask) * mask for name, mask in masks.items()}
        return masked(self.weights(state), masks) | self.own(state)

    def personal(self, state: State) -> State:
        """The effective weights with the coefficients and identities; of several views, with their mixture."""
        if not self.several:
            return self.effective(state, self.networks)
        mixture = state[MIXTURE]
        # Nothing reads the weights of a view without weight, which the host can tell where it has the values.
        used = (mixture.amax(0) > 0).tolist() if on_host(mixture) else [True] * len(self.names)
        views = [prefix for prefix, counts in zip(self.networks, used, strict=True) if counts]
        # Nor do masks act before they learn; multiplying by them takes a third of a round on a CPU.
        masked_views = views if self.masks_learn(views) or not on_host(mixture) else ()
        return self.effective(state, masked_views, state.get(MASK_SHARE)) | {MIXTURE: mixture}

    def receive(self, state: State, down: Message) -> None:
        """Copy what is shared into the state."""
        for name, value in down.items():
            state[name].copy_(dense(value))

    def masks_learn(self, live: Collection[str]) -> bool:
        """Whether masks are trained: while many views compete, they are compared by what clients share."""
        return bool(self.maskable) and (len(live) <= LEFT or not self.settings.drop)

    def live(self, down: Message) -> dict[str, Network]:
        """The views that are trained, of `networks`: those that the server sent; all before it sent any."""
        sent = {name for name in down if name.startswith(MODEL)}
        found = {p: n for p, n in self.networks.items() if any(name.startswith(MODEL + p) for name in sent)}
        return found or self.networks

    def without_worse(self, down: Message, last: bool) -> Message:
        """A download without the views that are clearly worse than the best one, by the average votes in it, which the host
        reads; the last time also without all but the best LEFT. Of views with equal votes, none or all are dropped."""
        votes = dense(down[AVERAGE_VOTES]).clone()
        views = votes[: len(self.names)]
        found = sorted(
            (views[place].item() for place, p in enumerate(self.networks) if p in self.live(down)), reverse=True
        )
        least = found[0] - CLEARLY / VOTE_POINTS
        views[views < (max(least, found[:LEFT][-1]) if last else least)] = DROPPED
        dropped = tuple(MODEL + prefix for prefix, vote in zip(self.networks, views.tolist(), strict=True) if vote < 0)
        return {name: v for name, v in down.items() if not name.startswith(dropped)} | {AVERAGE_VOTES: votes}

    def local_update(self, state: State, cohort: Cohort, down: Message, round: int) -> Update:
        """Drop views where the round asks for it, and train."""
        if self.drops(round) and AVERAGE_VOTES in down:  # else no upload has arrived yet
            down = self.without_worse(down, round == DROPS[-1])
        if self.sends_gradients and not self.one_step(cohort):
            for name in self.sent_names(down):
                state[GRADIENT + name].zero_()
        return super().local_update(state, cohort, down, round)

    def after_training(self, state: State, cohort: Cohort, down: Message, loss: Tensor) -> Update:
        """Compare the views and vote, where there are several; then as usual."""
        if self.several:
            self.vote(state, cohort, down)
        return super().after_training(state, cohort, down, loss)

    def vote(self, state: State, cohort: Cohort, down: Message) -> None:
        """The client's votes on views and masks, and its mixture by all votes that are known, into the state."""
        average, views = state[AVERAGE_VOTES], len(self.names)
        masks_learn = self.masks_learn(self.live(down))
        points = self.compare(state, cohort, down, masks_learn)
        own = [votes_of(points[:, :views], average[:, :views] >= 0, VOTE_POINTS)]
        if self.maskable:
            own.append(votes_of(points[:, views:], average[:, views:] >= 0, VOTE_POINTS))
        state[VOTES].copy_(torch.cat(own, dim=1))
        checked, scale = cohort.counts(self.task.seen(cohort, "val").val), self.settings.sharpness * VOTE_POINTS
        trust = checked / (checked + self.settings.own_votes).clamp_min(1.0)
        state[MIXTURE].copy_(mixture_weights(state[VOTES][:, :views], average[:, :views], trust, scale))
        if masks_learn:
            state[MASK_SHARE].copy_(mixture_weights(state[VOTES][:, views:], average[:, views:], trust, scale)[:, 0])

    @torch.no_grad()
    def compare(self, state: State, cohort: Cohort, down: Message, masks_learn: bool) -> Tensor:
        """The validation metric with each view as it is shared, then of their mixture with masks and without, in points,
        higher is better: [M, V + 2], or [M, V] without masks; zeros of views that are not trained, and of both while masks do
        not learn."""
        metric, seen = self.task.metric(self.context.metric), self.task.seen(cohort, "val")
        scale = metric.scale if metric.higher_is_better else -metric.scale
        none, live = torch.zeros(cohort.clients, device=cohort.device), self.live(down)

        def points(outputs: Tensor) -> Tensor:
            return scale * metric.function(cohort, outputs, "val")

        shared = self.view_logits(self.effective(state, ()), seen, live)
        found = [points(shared[place]) if place in shared else none for place in range(len(self.names))]
        if masks_learn:
            own = self.view_logits(self.effective(state, live), seen, live)
            found += [points(mixed(seen, logits, state[MIXTURE])) for logits in (own, shared)]
        elif self.maskable:
            found += [none, none]
        return torch.stack(found, dim=1)

    def view_logits(self, weights: Weights, cohort: Cohort, live: Collection[str]) -> dict[int, Tensor]:
        """The logits of each of these views at every node, by its place: [R, C] each."""
        assert isinstance(self.model, Views)
        return {
            place: self.at_every_node(self.model.weights_of(view, weights), cohort, False, network).logits
            for place, (view, network) in enumerate(self.model.networks.items())
            if prefix_of(view) in live
        }

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """Of each view's loss at V = W (1 + O): dW = dV (1 + O) and dO = dV W; each client's mean loss over views."""
        out: Weights = {}
        live = self.live(down)
        learn = self.masks_learn(live)
        losses, effective = [], self.effective(state, live if learn else ())
        for prefix, network in live.items():
            own = self.own(state) if isinstance(network, FilterNet) else {}
            weights = {name: effective[prefix + name] for name in network.shapes()} | own
            grads, loss = self.view_gradients(network, weights, cohort, dropout)
            losses.append(loss)
            out |= {name: grads.pop(name) for name in own}
            for inside, grad in grads.items():
                name = prefix + inside
                if learn and name in self.maskable:
                    out[MASK + name] = grad * state[MODEL + name]
                    grad.addcmul_(grad, state[MASK + name])
                out[MODEL + name] = grad
        return out, losses[0] if len(losses) == 1 else torch.stack(losses).mean(0)

    def view_gradients(
        self, network: Network, weights: Weights, cohort: Cohort, dropout: Dropout
    ) -> tuple[Weights, Tensor]:
        """The gradient of a view's loss with respect to its effective weights, with some features dropped."""
        if not self.settings.feature_dropout:
            return self.effective_gradients(weights, cohort, dropout, network)
        readers = getattr(network, "feature_weights", ())
        groups = network.groups if isinstance(network, FilterNet) else 1
        kept = self.kept_features(cohort, dropout, groups)
        dropped = weights | {name: scaled_groups(weights[name], kept) for name in readers}
        grads, loss = self.effective_gradients(dropped, cohort, dropout, network)
        for name in readers:
            scaled_groups(grads[name], kept, grads[name])
        return grads, loss

    def kept_features(self, cohort: Cohort, dropout: Dropout, groups: int) -> Tensor:
        """The factor of each feature in a training step, zero or 1 / (1 - feature_dropout), for each group: [M, F, G]."""
        rows = Places(self.context.features, cohort.device, cohort.clients)
        mask = Dropout(self.settings.feature_dropout, dropout.keys, dropout.step).mask(rows, groups, FEATURE_LAYER)
        return mask.view(cohort.clients, self.context.features, groups)

    def move(self, state: State, cohort: Cohort, grads: Weights, down: Message) -> None:
        """Add the gradients that are sent to those of the round, and take a step of Adam along the others."""
        if not self.sends_gradients:
            return super().move(state, cohort, grads, down)
        if self.settings.clip:
            self.clip(grads, self.settings.clip)
        own, steps = self.own_epochs(cohort), self.batches_an_epoch(cohort)
        decay, once = cohort.own_values("weight_decay", self.settings.weight_decay), self.one_step(cohort)
        for name in self.sent_names(down):
            grad, total = grads.pop(MODEL + name), state[GRADIENT + name]
            if decay is not None:  # the server's step has that of all
                grad.addcmul_(along((decay - self.settings.weight_decay).float(), grad), state[MODEL + name])
            if once:
                total.copy_(grad)
                continue
            count = self.settings.epochs if own is None else along(own.float(), grad)
            total.add_(grad / (count if steps is None else count * along(steps, grad)))
        if grads:
            super().move(state, cohort, grads, down)
        return None

    def one_step(self, cohort: Cohort) -> bool:
        """Whether every client takes one step a round."""
        return self.settings.epochs == 1 and self.own_epochs(cohort) is None and self.batches_an_epoch(cohort) is None

    def sent_names(self, down: Message) -> list[str]:
        """The shared weights of the views that are trained."""
        live = tuple(self.live(down))
        return [name for name in self.shapes() if self.shares(name) and name.startswith(live)]

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """The gradients, or the weights without the mask, of the views that are trained; the evidence for them; votes."""
        prefix = GRADIENT if self.sends_gradients else MODEL
        message: Message = {prefix + name: state[prefix + name] for name in self.sent_names(down)}
        if self.sends(FILTER):
            message[FILTER] = state[FILTER]
        message |= self.evidence(cohort)
        if self.sends(TRAIN_NODES.name):
            message[TRAIN_NODES.name] = cohort.train_count
        if self.sends(VOTES):
            message[VOTES] = state[VOTES]
        return message

    def public_start(self) -> Message:
        """The common start of what is sent: no gradient."""
        known = super().public_start()
        sent = {name.removeprefix(MODEL): dense(w) for name, w in known.items() if name.startswith(MODEL)}
        return known | {GRADIENT + name: torch.zeros_like(w) for name, w in sent.items() if self.shares(name)}

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """The shared weights with Adam's moments, where the server takes the steps; the average votes; what the averaging
        rule needs. Nothing is sent."""
        state = {n: w for n, w in self.previous_start().items() if not n.startswith(PREVIOUS + GRADIENT)}
        if self.sends_gradients:
            start = self.common_weights(1, torch.device("cpu"))
            shared = {MODEL + name: w for name, w in start.items() if self.shares(name)}
            state = {n: w for n, w in state.items() if n.removeprefix(PREVIOUS) not in shared} | shared
            state |= adam_start(shared)
        if self.several:
            state[AVERAGE_VOTES] = torch.ones(self.options)
        return state, {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """Adam's moments and a mean gradient, or evidence with its floor and its share of all clients'."""
        evidence = 12 * sizes.senders * max(self.context.features, self.context.outputs)
        return super().server_memory(sizes) + (4 * sizes.upload if self.sends_gradients else evidence)

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """A step of Adam along the mean gradient, or each patch averaged over those who have evidence for it."""
        if not self.shared:
            return {}
        nodes = dense(uploads[TRAIN_NODES.name])
        sent = {n: dense(v) for n, v in uploads.items() if n not in EVIDENCE and n != TRAIN_NODES.name}
        votes = sent.pop(VOTES).clamp(0.0, 1.0) if VOTES in sent else None
        gradients = {n: sent.pop(n) for n in list(sent) if n.startswith(GRADIENT)}
        seen = {n: dense(uploads[n]) for n in EVIDENCE if n in uploads}
        message = self.server_step(server, self.mean_gradients(gradients, nodes)) if gradients else {}
        message |= self.averaged(server, sent, seen, nodes) if sent else {}
        if votes is None:
            return message
        return message | self.average_votes(
            server, self.averaging.average(votes, nodes, server[AVERAGE_VOTES]), message
        )

    def mean_gradients(self, stacks: State, nodes: Tensor) -> State:
        """The mean over clients by their training nodes; a robust rule averages each feature's over those who have one."""
        if self.averaging is WEIGHTED_MEAN:
            return {name: self.averaging.average(stack, nodes) for name, stack in stacks.items()}
        readers = {GRADIENT + name for name in getattr(self.model, "feature_weights", ())}
        before: dict[str, Tensor | None] = {name: torch.zeros_like(stack[0]) for name, stack in stacks.items()}
        has = {name: stacks[name].flatten(2).abs().amax(2) > 0 if name in readers else None for name in stacks}
        trust, floor, out = self.trust(before, stacks, has), FLOOR * nodes.unsqueeze(1), {}
        for name, stack in stacks.items():
            weight, some = nodes * trust[name] if name in trust else nodes, has[name]
            if some is None:
                out[name] = self.averaging.average(stack, weight, before[name])
            else:
                out[name] = self.averaging.average_patches(stack, weight.unsqueeze(1) * some, floor, before[name])
        return out

    def server_step(self, server: State, gradients: State) -> Message:
        """A step of Adam of the shared weights; what is sent then."""
        grads = {name.replace(GRADIENT, MODEL, 1): grad.unsqueeze(0) for name, grad in gradients.items()}
        weights = {name: server[name] for name in grads}
        adam_step(weights, grads, server, self.settings.lr, self.settings.weight_decay)
        return {name: w[0].clone() for name, w in weights.items()}

    def average_votes(self, server: State, votes: Tensor, message: Message) -> Message:
        """The average votes, moved toward everyone's of this round; a view of which nothing is sent any more is dropped."""
        average, sent = server[AVERAGE_VOTES], self.live(message)
        average.add_(votes - average, alpha=STEADY)
        for place, prefix in enumerate(self.networks):
            if prefix not in sent:
                average[place].fill_(DROPPED)  # an assignment would copy from the host, which no CUDA graph may
        return {AVERAGE_VOTES: average.clone()}

    def summands(self, uploads: Message) -> State:
        """n_m times what is sent, and n_m; of weights e_mp W_m[p] for every patch p, and the evidence."""
        return weighted_summands(uploads, TRAIN_NODES.name) if self.sends_gradients else self.evidence_summands(uploads)

    def aggregate_sums(self, server: State, sums: State, receivers: Tensor) -> Message:
        """A step along the mean gradient; or sum_m e_mp W_m[p] / sum_m e_mp, where the denominator is that of the summed
        evidence, in which e is linear."""
        mean = mean_of_sums(sums, TRAIN_NODES.name) if self.sends_gradients else self.averaged_sums(sums)
        votes = mean.pop(VOTES).clamp(0.0, 1.0) if VOTES in mean else None
        gradients = {name: mean.pop(name) for name in list(mean) if name.startswith(GRADIENT)}
        message: Message = self.server_step(server, gradients) if gradients else {}
        message |= mean
        return message if votes is None else message | self.average_votes(server, votes, message)

    def evidence_of(self, name: str) -> tuple[str, int] | None:
        """What the weight `name` is averaged by: its first axis is features, or its last classes, or neither."""
        if not self.settings.evidence or not name.startswith(MODEL):
            return None
        inside = name.removeprefix(MODEL)
        if self.in_view(inside).startswith("classifier."):
            return (CLASSES_SEEN, -1) if self.task.has_classes else None  # else by training nodes
        return (FEATURES_SEEN, 0) if inside in getattr(self.model, "feature_weights", ()) else None

    # -- clients that come after training, and reports ---------------------------------------------------------------

    def newcomer_update(self, state: State, cohort: Cohort, down: Message) -> Update:
        """Train all that was given with Adam, as nobody else does it."""
        trainer = self._newcomer_trainer()
        moments = adam_start(trainer.trained(state))
        state |= {name: tensor for name, tensor in moments.items() if name not in state}
        return trainer.local_update(state, cohort, down, self._newcomer_round())

    def _newcomer_trainer(self) -> AdamMethod:
        """The same method with a newcomer's epochs, which takes the steps at the client."""
        settings = replace(self.settings, epochs=self.newcomer_epochs(), average="weights")
        return type(self)(settings, self.context, self.averaging)

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """The weight of each view in the mixture, and of masks, by everyone's average votes."""
        if AVERAGE_VOTES not in server:
            return {}
        out: dict[str, Tensor] = {}
        scale, views = self.settings.sharpness * VOTE_POINTS, len(self.names)
        for names, votes in ((self.names, server[AVERAGE_VOTES][:views]), (["masks"], server[AVERAGE_VOTES][views:])):
            weights = mixture_weights(votes[None], votes[None], votes.new_zeros(1), scale)[0]
            out |= {f"view_{name}": weight for name, weight in zip(names, weights, strict=False)}
        return out

    def findings(self, server: State, clients: State) -> dict[str, Tensor]:
        """Each client's coefficients by distance, the mean over its groups: [M, K + 1]; its mixture of views: [M, V]."""
        found = {"coefficients": clients[FILTER].mean(1)} if FILTER in clients else {}
        return found | ({"views": clients[MIXTURE]} if MIXTURE in clients else {})


def scaled_groups(weight: Tensor, factor: Tensor, out: Tensor | None = None) -> Tensor:
    """Multiply the weights of each group of units by its factors: [M, F, H], [M, F, G] -> [M, F, H], into `out` if given."""
    hidden, groups = weight.shape[-1], factor.shape[-1]
    out = torch.empty_like(weight) if out is None else out
    for group in range(groups):
        units = slice(-(-group * hidden // groups), -(-(group + 1) * hidden // groups))
        torch.mul(weight[..., units], factor[..., group : group + 1], out=out[..., units])
    return out


def _check(settings: QuiltSettings, views: list[str], shared: set[str]) -> None:
    """Refuse settings that do not go together."""
    if unknown := shared - {"layer", "head", "filter"}:
        raise FedquiltError(f"Quilt cannot share '{min(unknown)}': give share as any of layer, head, filter.")
    if "filter" not in views and (settings.identity or "filter" in shared):
        raise FedquiltError(f"identity and share=filter are for model=filter, not {','.join(views)}; leave them out.")
    if set(views) <= set(NETWORKS) and settings.layers != QuiltSettings.layers:
        raise FedquiltError("layers is for the usual backbones, such as sage; model=filter reaches farther with order.")
